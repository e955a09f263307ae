"""Which columns come out: those that go with every event, and fields of its JSON."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from penstock.connector.options import DEFAULT_COLUMNS, EVENT_COLUMNS, Read
from penstock.core.errors import InvalidOption, InvalidRequest


@dataclass(frozen=True)
class Output:
    """The columns of a read, as Arrow has them, and which of them are fields."""

    schema: pa.Schema
    fields: pa.Schema
    #: Columns of the event itself, by where they stand.
    events: tuple[str, ...]


def ddl(read: Read) -> str:
    """The schema of a read for which nobody gave one, for Spark to parse."""
    columns = [
        f"`{name}` {EVENT_COLUMNS[name]}" for name in (DEFAULT_COLUMNS if read.columns is None else read.columns)
    ]
    if read.fields:
        columns.append(read.fields)
    if not columns:
        raise InvalidOption(
            "option 'columns' leaves no column: name some, or fields with the option 'fields'", option="columns"
        )
    return ", ".join(columns)


def output_of(read: Read, schema: StructType) -> Output:
    """What the columns of a schema mean.

    A name that the option ``columns`` lists, or where there is none that of a column of every event, means that
    column; all others are fields.
    """
    if read.columns is None and read.fields:
        # The schema is ours: the usual columns, then the fields.
        own = set(DEFAULT_COLUMNS)
    else:
        own = set(EVENT_COLUMNS if read.columns is None else read.columns)
    names = schema.fieldNames()
    for name in names:
        if names.count(name) > 1:
            raise InvalidOption(
                f"the field {name!r} has the name of a column of every event: leave that out with the option "
                "'columns', which lists the ones you want",
                option="fields",
            )
    arrow = to_arrow_schema(schema, timezone="UTC")
    fields = []
    for place, column in enumerate(schema.fields):
        if column.name in own:
            _check_column(column)
        else:
            _check_field(column.name, arrow.field(place).type)
            fields.append(arrow.field(place))
    return Output(arrow, pa.schema(fields), tuple(name for name in names if name in own))


def _check_column(column: StructField) -> None:
    kind = column.dataType.simpleString()
    if kind != EVENT_COLUMNS[column.name]:
        raise InvalidRequest(
            f"column {column.name!r} of an event is {EVENT_COLUMNS[column.name]}, and the schema says {kind}; if a "
            "field of the JSON is meant, list the columns of the event that you want with the option 'columns', and "
            f"{column.name!r} not among them"
        )


def _check_field(name: str, kind: pa.DataType) -> None:
    if not _is_readable(kind):
        raise InvalidRequest(
            f"field {name!r} is of type {kind}, which JSON does not have: read it as string, or a struct, and cast that"
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
