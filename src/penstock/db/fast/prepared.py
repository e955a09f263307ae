"""For the few statements that are sent all the time: prepared by hand, so that little but libpq is between us and them.

A cursor of the driver finds out anew, for each statement, what it is, whether it is prepared and how to write its
parameters, which takes longer than all that this process has to do for an event. Here the caller says it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from itertools import count
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection, errors, generators
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus

# A queue has some of its own in each segment; those that were not used for longest make room.
_MOST_PREPARED = 500

_PLACEHOLDER = re.compile(r"%\((\w+)\)([sb])")
_MICROSECOND = timedelta(microseconds=1)

_numbers = count()
_prepared: WeakKeyDictionary[AsyncConnection[Any], dict[str, bytes]] = WeakKeyDictionary()


async def fetch(conn: AsyncConnection[Any], statement: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run a statement and return its rows.

    It says the type of each parameter where PostgreSQL cannot know (``%(n)s::bigint``). Parameters are texts, numbers,
    UUIDs, spans of time, None, or bytes, which are written ``%(n)b``. On a connection that is not the pool's, or is in
    a transaction, the driver does it: after a ROLLBACK or a DROP it forgets all that was prepared, and the first to
    notice fails.
    """
    if getattr(conn, "pgconn", None) is None or conn.pgconn.transaction_status != TransactionStatus.IDLE:
        return await (await conn.execute(statement, params, binary=True)).fetchall()
    text, names, formats = _positional(statement)
    values = [_written(params[name]) for name in names]
    async with conn.lock:
        known = _prepared.setdefault(conn, {})
        try:
            result = await _run(conn, known, statement, text, values, formats)
        except errors.InvalidSqlStatementName:
            known.clear()
            result = await _run(conn, known, statement, text, values, formats)
    transformer = Transformer(conn)
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)


async def _run(
    conn: AsyncConnection[Any],
    known: dict[str, bytes],
    statement: str,
    text: bytes,
    values: Sequence[bytes | None],
    formats: Sequence[Format],
) -> Any:
    name = known.pop(statement, None)
    if name is None:
        name = await _prepare(conn, known, text)
    known[statement] = name
    conn.pgconn.send_query_prepared(name, values, formats, Format.BINARY)
    return await _result(conn)


async def _prepare(conn: AsyncConnection[Any], known: dict[str, bytes], text: bytes) -> bytes:
    if len(known) >= _MOST_PREPARED:
        conn.pgconn.send_query(b"DEALLOCATE " + known.pop(next(iter(known))))
        await _result(conn)
    # Never one that was used before: who is cancelled here does not learn whether it was.
    name = b"penstock_%d" % next(_numbers)
    conn.pgconn.send_prepare(name, text)
    await _result(conn)
    return name


async def _result(conn: AsyncConnection[Any]) -> Any:
    (result,) = await conn.wait(generators.execute(conn.pgconn))
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise errors.error_from_result(result)
    return result


@lru_cache(maxsize=10_000)
def _positional(statement: str) -> tuple[bytes, list[str], list[Format]]:
    kinds = dict(_PLACEHOLDER.findall(statement))
    names = list(kinds)
    text = _PLACEHOLDER.sub(lambda found: f"${names.index(found[1]) + 1}", statement).replace("%%", "%")
    return text.encode(), names, [Format.BINARY if kind == "b" else Format.TEXT for kind in kinds.values()]


def _written(value: Any) -> bytes | None:
    kind = type(value)
    if kind is bytes or value is None:
        return value  # type: ignore[no-any-return]  # one of the two
    if kind is str:
        return value.encode()  # type: ignore[no-any-return]  # a text's
    if kind is UUID:
        return value.hex.encode()  # type: ignore[no-any-return]  # a text's
    if kind is timedelta:
        return b"%d microseconds" % (value // _MICROSECOND)
    if kind is int or kind is float:
        return repr(value).encode()
    raise TypeError(f"a {kind.__name__} cannot be sent directly")
