"""Applies mappings to the data of dead letters. PostgreSQL computes the fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import psycopg
from msgspec import Raw
from psycopg_pool import AsyncConnectionPool

from penstock.core.errors import InvalidRequest, short_repr
from penstock.db.scalar import fetch_scalar
from penstock.log.dead_letters.dead_letter import CopiedFields, JsonMapping, MappedField

#: The most bytes of the object that a mapping makes, and of the values that one of its fields is computed from.
_MAX_BYTES = 1 << 26
#: The most milliseconds that the computation of a field takes.
_TIMEOUT_MS = 2_000

_members = msgspec.json.Decoder(dict[str, Raw])


async def apply_mapping(
    mapping: JsonMapping, data: bytes, pool: AsyncConnectionPool[Any], timeout_ms: int = _TIMEOUT_MS
) -> bytes:
    """Return the object that a mapping makes of one. Raises InvalidRequest with the reason if it makes none."""
    try:
        given = _members.decode(data)
    except msgspec.ValidationError:
        raise InvalidRequest(
            f"SQL maps objects, and the data is {short_repr(data.decode())}: use a function in Python for it"
        ) from None
    made: dict[str, Raw] = {}
    size = 0
    for field in mapping.fields:
        if isinstance(field, CopiedFields):
            made.update((name, raw) for name, raw in given.items() if name not in field.excluded)
            continue
        if field.source is not None and field.source in given:
            made[field.name] = given[field.source]
        else:
            try:
                made[field.name] = Raw(await _compute(field, given, pool, timeout_ms))
            except InvalidRequest as error:
                raise InvalidRequest(f"{field.name}: {error}") from None
        size += len(made[field.name])
        if size > _MAX_BYTES:
            raise InvalidRequest(f"the result has more than {_MAX_BYTES} bytes")
    return msgspec.json.encode(made)


async def _compute(
    field: MappedField, given: Mapping[str, Raw], pool: AsyncConnectionPool[Any], timeout_ms: int
) -> bytes:
    used = {name: given[name] for name in field.columns & given.keys()}
    if field.max_bytes({name: len(raw) for name, raw in used.items()}) > _MAX_BYTES:
        raise InvalidRequest(f"the values that it is computed from could have more than {_MAX_BYTES} bytes")
    parameters = {**field.parameters, "data": msgspec.json.encode(used).decode()}
    async with pool.connection() as conn:
        try:
            await conn.execute(f"BEGIN READ ONLY; SET LOCAL statement_timeout = {timeout_ms:d}", prepare=False)
            value = await fetch_scalar(conn, field.query, parameters)
        except psycopg.errors.QueryCanceled:
            raise InvalidRequest(f"it took longer than {timeout_ms / 1000:g} seconds") from None
        except (psycopg.DataError, psycopg.ProgrammingError, psycopg.errors.ProgramLimitExceeded) as error:
            raise InvalidRequest(error.diag.message_primary or str(error)) from None
        finally:
            await conn.rollback()
    text = "null" if value is None else str(value)
    if field.is_number and text.startswith('"'):
        raise InvalidRequest(f"{text} is no number in JSON")
    return msgspec.json.format(text, indent=-1).encode()
