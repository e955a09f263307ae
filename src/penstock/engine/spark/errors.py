"""What went wrong on Spark, in a line that says something."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.errors import InvalidRequest

#: What py4j puts before what the JVM said, and the JVM before what it means.
_CALLED = re.compile(r"An error occurred while calling \S+\n: ")
_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]+: ")
#: Of a job that failed, what its last task said is worth more than that it failed.
_TASK = re.compile(r"most recent failure: Lost task [^:]*: (.*)")
_LONGEST = 500
#: What to do about it, by Spark's name for what it does not understand.
_HINTS = {
    "UNRESOLVED_COLUMN": "If a field is meant that no event has shown yet, declare it with "
    "Stream.from_(..., schema={...})",
    "TABLE_OR_VIEW_NOT_FOUND": "Say which table is meant: .sql('SELECT ... FROM stream JOIN fx ...', fx='app.rates')",
}


def first_line(error: BaseException) -> str:
    """The line of an error that tells what it is about; mostly the first."""
    text = _CALLED.sub("", str(error).strip(), count=1)
    task = _TASK.search(text)
    lines = [task.group(1)] if task is not None else text.splitlines()
    return _CLASS.sub("", lines[0])[:_LONGEST] if lines else type(error).__name__


def say_no_more() -> None:
    """Leave it to who gets an error to say what is wrong.

    PySpark logs each one that it raises, with the JVM's stack and with what an event held.
    """
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


@contextmanager
def understood() -> Iterator[None]:
    """Around what has Spark read a stream: what it does not understand is a mistake in the stream."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        kind = (error.getCondition() or "").partition(".")[0]
        hint = f". {_HINTS[kind]}" if kind in _HINTS else ""
        raise InvalidRequest(f"Spark does not understand the stream: {first_line(error).rstrip('.')}{hint}") from error
