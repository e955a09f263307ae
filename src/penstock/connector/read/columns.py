"""The columns of a read: event columns, and fields of the event's JSON."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from penstock.connector.options import DEFAULT_COLUMNS, EVENT_COLUMNS, ReadOptions
from penstock.core.errors import InvalidOption, InvalidRequest


@dataclass(frozen=True)
class OutputColumns:
    schema: pa.Schema
    fields: pa.Schema
    #: The event columns in order; the others are fields.
    events: tuple[str, ...]


def to_ddl(read: ReadOptions) -> str:
    """Return the schema of a read without a schema of the user, as DDL."""
    columns = [
        f"`{name}` {EVENT_COLUMNS[name]}" for name in (DEFAULT_COLUMNS if read.columns is None else read.columns)
    ]
    if read.fields:
        columns.append(read.fields)
    if not columns:
        raise InvalidOption(
            "option 'columns' selects no column: name some, or fields with the option 'fields'", option="columns"
        )
    return ", ".join(columns)


def output_columns(read: ReadOptions, schema: StructType) -> OutputColumns:
    """Split the columns of a schema into event columns and fields.

    Event columns are those that the option ``columns`` lists or, without the option, all event columns.
    """
    if read.columns is None and read.fields:
        # The schema is that of to_ddl: the default columns, then the fields.
        event_columns = set(DEFAULT_COLUMNS)
    else:
        event_columns = set(EVENT_COLUMNS if read.columns is None else read.columns)
    names = schema.fieldNames()
    for name in names:
        if names.count(name) > 1:
            raise InvalidOption(
                f"the field {name!r} has the name of an event column: leave that out with the option 'columns', which "
                "lists the event columns to read",
                option="fields",
            )
    arrow = to_arrow_schema(schema, timezone="UTC")
    fields = []
    for index, column in enumerate(schema.fields):
        if column.name in event_columns:
            _check_column(column)
        elif _is_readable(arrow.field(index).type):
            fields.append(arrow.field(index))
        else:
            raise InvalidRequest(
                f"field {column.name!r} is of type {arrow.field(index).type}, which JSON does not have: read it as "
                "string, or a struct, and cast that"
            )
    return OutputColumns(arrow, pa.schema(fields), tuple(name for name in names if name in event_columns))


def _check_column(column: StructField) -> None:
    kind = column.dataType.simpleString()
    if kind != EVENT_COLUMNS[column.name]:
        raise InvalidRequest(
            f"the event column {column.name!r} is {EVENT_COLUMNS[column.name]}, and the schema says {kind}; to read a "
            f"field of that name, list the event columns to read with the option 'columns', without {column.name!r}"
        )


def _is_readable(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_readable(inner.type) for inner in kind)
    if pa.types.is_list(kind):
        return _is_readable(kind.value_type)
    return bool(
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_string(kind)
        or pa.types.is_timestamp(kind)
    )
