"""Reference tables of a definition: a PostgreSQL table or query, a Spark DataFrame, or a function that returns one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.errors import InvalidOption, InvalidRequest, InvalidSql, short_repr
from penstock.core.names import check_name
from penstock.stream.expression import accepts_arguments, function_name, is_frame, is_python
from penstock.stream.steps import ReferenceTable
from penstock.stream.windows import parse_seconds

#: PostgreSQL truncates longer names.
_MAX_NAME_BYTES = 63


def reference_table(source: Any, refresh_seconds: float = 60.0, notify: str | None = None) -> ReferenceTable:
    """Return the reference table for a table's name, a query, a DataFrame, or a function that returns one."""
    if isinstance(source, ReferenceTable):
        return source
    parse_seconds("refresh_seconds", refresh_seconds)
    if notify is not None:
        check_name(notify, "channel")
        if len(notify.encode()) > _MAX_NAME_BYTES:
            raise InvalidOption(
                f"the name of a PostgreSQL channel has at most {_MAX_NAME_BYTES} bytes, and {short_repr(notify)} has "
                "more: no notification would arrive on it",
                option="notify",
            )
    if isinstance(source, str):
        return ReferenceTable(_postgres_query(source), None, refresh_seconds, notify)
    if is_python(source):
        _check_frame_function(source)
    if not is_frame(source) and not is_python(source):
        raise InvalidRequest(
            "a reference table is a name, a query, a Spark DataFrame or a function that returns one, "
            f"not {short_repr(source)}"
        )
    return ReferenceTable(frame=source, refresh_seconds=refresh_seconds, notify=notify)


def _check_frame_function(function: Callable[..., Any]) -> None:
    if not accepts_arguments(function, None):
        raise InvalidRequest(
            f"{function_name(function)} must take the Spark session and return a DataFrame: write def rates(spark)"
        )


def _postgres_query(source: str) -> str:
    from penstock.stream.sql.table_source import is_query, is_table_name

    text = source.strip().removesuffix(";").rstrip()
    try:
        if is_query(text):
            return text
        if is_table_name(text):
            return f"TABLE {text}"
    except InvalidSql as error:
        raise InvalidRequest(f"the reference table {short_repr(source)}: {error}") from None
    raise InvalidRequest(
        f"a reference table is a name such as 'crm.customers' or a query 'SELECT ...', not {short_repr(source)}"
    )
