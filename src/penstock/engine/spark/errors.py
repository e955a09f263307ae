"""Summaries of Spark errors, and their translation to errors of this package."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.core.errors import InvalidRequest, UnknownField
from penstock.core.suggestions import closest_names, describe_known

#: The prefixes that py4j and the JVM put before a message.
_PY4J_PREFIX = re.compile(r"An error occurred while calling \S+\n: ")
_CLASS_PREFIX = re.compile(r"^(?:[\w$]+\.)+[\w$]+: ")
#: The message of the task that failed a job.
_TASK_MESSAGE = re.compile(r"most recent failure: Lost task [^:]*: (.*)")
#: The line after the frames of a Python traceback: the class of the error and its message.
_RAISED = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", re.MULTILINE)
_MAX_CHARACTERS = 500
#: The errors for an unknown name, with the parameters for the name and for the names that Spark knows.
_UNKNOWN_NAMES = {
    "UNRESOLVED_COLUMN": ("objectName", "proposal"),
    "FIELD_NOT_FOUND": ("fieldName", "fields"),
    "UNRESOLVED_USING_COLUMN_FOR_JOIN": ("colName", "suggestion"),
}
#: The advice by the class of Spark's error.
_HINTS = {
    "TABLE_OR_VIEW_NOT_FOUND": "Name the table: .sql('SELECT ... FROM stream JOIN fx ...', fx='app.rates')",
}


def error_summary(error: BaseException) -> str:
    """Return the most specific line of an error: that of Python code, of the failed task, or the first line."""
    from pyspark.errors import PythonException

    text = _PY4J_PREFIX.sub("", str(error).strip(), count=1)
    raised = _RAISED.findall(text) if isinstance(error, PythonException) else []
    if raised:
        return str(raised[-1])[:_MAX_CHARACTERS]
    task = _TASK_MESSAGE.search(text)
    lines = [task.group(1)] if task is not None else text.splitlines()
    return _CLASS_PREFIX.sub("", lines[0])[:_MAX_CHARACTERS] if lines else type(error).__name__


def is_worker_error(error: BaseException, kind: type[Exception]) -> bool:
    """Return whether a Python worker failed with an error of this class."""
    return worker_message(error, kind) is not None


def worker_message(error: BaseException, kind: type[Exception]) -> str | None:
    """Return the message of an error of this class with which a Python worker failed; None if it did not.

    Spark passes on the error of a worker as the text of its traceback, whose last line starts with the class.
    """
    last_line = re.search(
        rf"^{re.escape(kind.__module__)}\.{kind.__qualname__}(?:: (.*)|:?$)", str(error), re.MULTILINE
    )
    return None if last_line is None else last_line[1] or ""


def disable_pyspark_error_logs() -> None:
    """Disable the loggers with which PySpark logs each error that it raises, with the JVM's stack and event data."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


@contextmanager
def stream_errors(event_fields: Collection[str] = ()) -> Iterator[None]:
    """Raise InvalidRequest for a stream that Spark cannot analyze. ``event_fields`` are the fields of recent events."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        condition = (error.getCondition() or "").partition(".")[0]
        if condition in _UNKNOWN_NAMES:
            raise _unknown_field(error, *_UNKNOWN_NAMES[condition], event_fields) from error
        hint = f". {_HINTS[condition]}" if condition in _HINTS else ""
        raise InvalidRequest(f"Spark cannot analyze the stream: {error_summary(error).rstrip('.')}{hint}") from error


def _unknown_field(error: Any, name_of: str, known_of: str, event_fields: Collection[str]) -> UnknownField:
    """The error for a name that Spark cannot resolve, with the fields and columns that it may stand for."""
    parameters = error.getMessageParameters() or {}
    name = parameters.get(name_of, "").replace("`", "").removeprefix("stream.")
    # Spark proposes columns of the step, and among them internal ones.
    columns = [column.rpartition(".")[2] for column in re.findall(r"`([^`]*)`", parameters.get(known_of, ""))]
    known = {each for each in (*columns, *event_fields) if not each.startswith("__")}
    return UnknownField(
        f"there is no field {name!r} ({describe_known(name, known)}). Declare fields that no event has contained yet "
        f"with Stream.from_(..., schema={{{name.split('.')[0]!r}: 'double'}})",
        field=name,
        suggestions=closest_names(name, known),
    )
