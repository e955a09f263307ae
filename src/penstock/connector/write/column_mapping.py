"""Maps the columns of a DataFrame to events."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType, VariantType

from penstock.connector.write.row_json import encode_rows
from penstock.core.errors import InvalidOption, InvalidRequest
from penstock.log.write.encode.json_events import JsonEvents

#: Columns that the queue assigns. They are ignored, so that events of one queue can be written to another.
_ASSIGNED = frozenset(("queue", "partition", "offset", "timestamp"))
_WRITABLE = ("key", "value", "headers", "id", "eventTime")


@dataclass(frozen=True)
class EventRows:
    """How rows become events.

    With a column ``value``, that is the event's JSON, and other columns are its metadata. Without one, the whole row is
    the event.
    """

    key: str | None
    #: The columns that hold the event and its metadata; none if the whole row is the event.
    columns: frozenset[str]

    @classmethod
    def from_schema(cls, schema: StructType, key_column: str | None) -> EventRows:
        names = schema.fieldNames()
        if key_column is not None and key_column not in names:
            raise InvalidOption(
                f"option 'keyColumn' names {key_column!r}, and the rows have {', '.join(names)}", option="keyColumn"
            )
        key = key_column or ("key" if "key" in names else None)
        if "value" not in names:
            for field in schema.fields:
                _check_type(field.name, field.dataType)
            return cls(key, frozenset())
        unknown = [name for name in names if name not in _ASSIGNED and name not in _WRITABLE and name != key]
        if unknown:
            raise InvalidRequest(
                f"column {unknown[0]!r} would be lost: with a column 'value', which is the event's JSON, there may "
                f"be {', '.join(_WRITABLE)}; drop it, or leave out 'value', and the whole row becomes the event"
            )
        for name in ("value", "id"):
            kind = schema[name].dataType.simpleString() if name in names else "string"
            if kind not in ("string", "binary"):
                raise InvalidRequest(f"column {name!r} has to be text, and it is {kind}: use to_json(...) or a cast")
        if "eventTime" in names and schema["eventTime"].dataType.simpleString() != "timestamp":
            raise InvalidRequest("column 'eventTime' has to be a timestamp: cast it")
        if "headers" in names:
            given = schema["headers"].dataType
            if not isinstance(given, MapType) or {type(given.keyType), type(given.valueType)} != {StringType}:
                raise InvalidRequest(f"column 'headers' has to be map<string,string>, not {given.simpleString()}")
        return cls(key, frozenset(names))

    def to_events(self, batch: pa.RecordBatch, key_field: str | None) -> JsonEvents:
        """Return the events of a batch. ``key_field`` is the key field of the queue."""
        key = self.key
        if key is None and not self.columns and key_field in batch.schema.names:
            key = key_field
        keys = None if key is None else _texts(batch.column(key))
        if not self.columns:
            return JsonEvents(encode_rows(batch), keys)
        return JsonEvents(
            _values(batch.column("value")),
            keys,
            _texts(batch.column("id")) if "id" in self.columns else None,
            batch.column("eventTime").to_pylist() if "eventTime" in self.columns else None,
            _headers(batch.column("headers")) if "headers" in self.columns else None,
        )


def _check_type(column: str, kind: DataType) -> None:
    if isinstance(kind, ArrayType):
        _check_type(column, kind.elementType)
    elif isinstance(kind, MapType):
        _check_type(column, kind.valueType)
    elif isinstance(kind, StructType):
        for field in kind.fields:
            _check_type(f"{column}.{field.name}", field.dataType)
    elif isinstance(kind, BinaryType | VariantType):
        instead = "base64(...) or a cast to string" if isinstance(kind, BinaryType) else "to_json(...) or a cast"
        raise InvalidRequest(f"column {column!r} is {kind.simpleString()}, which JSON cannot represent: use {instead}")


def _texts(column: pa.Array) -> list[str | None] | None:
    """Return keys or ids as text; None if no row has one."""
    if column.null_count == len(column):
        return None
    texts: list[str | None] = column.cast(pa.string()).to_pylist()
    return texts


def _values(column: pa.Array) -> list[bytes]:
    values: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return [b"null" if value is None else value for value in values]


def _headers(column: pa.Array) -> list[dict[str, str] | None] | None:
    if column.null_count == len(column):
        return None
    return [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
