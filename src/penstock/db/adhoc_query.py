"""Runs queries that people type, with limits on time, memory, rows and size.

The rights of the login limit what a query reads. This module limits what it consumes. A query runs on its own
connection, which is closed afterwards, as a cursor in a read-only transaction, which is always rolled back. So the text
can only be one query, and no setting, lock or notification of its functions survives. A query can disable
``statement_timeout``, so the time limit is enforced here, by terminating the backend. A query can also raise
``work_mem`` or build a value of a gigabyte, so the operating system limits the memory of the backend, where it can
(:mod:`penstock.db.backend_memory`).
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import psycopg
from psycopg import AsyncConnection

from penstock.core.errors import DatabaseError, PenstockError
from penstock.core.names import find_text_problem
from penstock.db.backend_memory import limit_backend_memory
from penstock.db.readonly_login import ReadOnlyLogin
from penstock.db.statements import Statements

_logger = logging.getLogger("penstock.db")

_sql = Statements("penstock.db", "adhoc_query.sql")

_FETCH_ROWS = 20
_MAX_STATEMENT_CHARS = 100_000
_MAX_CONCURRENT = 4

ValueKind: TypeAlias = Literal["number", "time", "boolean", "text"]

_KINDS: dict[str, ValueKind] = {
    **dict.fromkeys(("int2", "int4", "int8", "float4", "float8", "numeric", "oid"), "number"),
    **dict.fromkeys(("timestamptz", "timestamp", "date"), "time"),
    "bool": "boolean",
}


@dataclass(frozen=True, slots=True)
class AdhocLimits:
    """Limits on the time and memory of a query and on the size of its result."""

    seconds: float = 10.0
    memory_bytes: int = 256 << 20
    rows: int = 1_000
    columns: int = 100
    value_chars: int = 2_000
    total_chars: int = 4_000_000


@dataclass(frozen=True, slots=True)
class AdhocColumn:
    """A column of a result."""

    name: str
    type: str
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class AdhocResult:
    """The result of a query, with values as text. ``truncation`` is the limit that cut it, if any."""

    columns: Sequence[AdhocColumn]
    rows: Sequence[tuple[str | None, ...]]
    seconds: float
    truncation: Literal["rows", "columns", "size"] | None = None


@dataclass(frozen=True, slots=True)
class VisibleTable:
    """A table or view that the login can read, with the name and type of each readable column."""

    schema: str
    name: str
    columns: Sequence[tuple[str, str]]


class StatementRefused(PenstockError):
    """A query was refused, failed or exceeded a limit. ``line`` and ``column`` locate the mistake, if known."""

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.hint = hint


class AdhocQueries:
    """Runs queries over the read-only login."""

    def __init__(self, login: ReadOnlyLogin, limits: AdhocLimits | None = None) -> None:
        self.login = login
        self.limits = limits or AdhocLimits()
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        #: Whether the memory of the last connection's queries is limited. None before the first connection.
        self.is_memory_limited: bool | None = None

    async def run(self, text: str) -> AdhocResult:
        """Run a query and return its result. Raises StatementRefused."""
        text = _check_text(text)
        if self._slots.locked():
            raise StatementRefused(f"{_MAX_CONCURRENT} queries are running: wait for one of them to end")
        async with self._slots:
            conn = await self.login.connect()
            pid = conn.info.backend_pid
            has_ended = False
            try:
                await self._limit_memory(conn)
                async with asyncio.timeout(self.limits.seconds):
                    result = await self._fetch(conn, text)
                has_ended = True
                return result
            except TimeoutError:
                raise StatementRefused(
                    f"the query took longer than {self.limits.seconds:g} seconds and was cancelled",
                    hint="Select less: a shorter time (WHERE window_end > now() - interval '1 hour'), or fewer keys.",
                ) from None
            except psycopg.errors.OutOfMemory as error:
                raise StatementRefused(
                    f"the query needs more than {self.limits.memory_bytes >> 20} MiB of memory and was cancelled",
                    hint="Select less, or aggregate in smaller groups.",
                ) from error
            except psycopg.Error as error:
                raise _make_refusal(error, text) from error
            finally:
                await conn.close()
                if not has_ended:
                    await asyncio.shield(self._terminate(pid))

    async def list_tables(self) -> list[VisibleTable]:
        """Return the tables and views that the login can read, ordered by schema and name."""
        conn = await self.login.connect()
        try:
            await self._limit_memory(conn)
            rows = await (await conn.execute(_sql["visible_tables"])).fetchall()
        finally:
            await conn.close()
        return [VisibleTable(schema, name, list(zip(names, types, strict=True))) for schema, name, names, types in rows]

    async def _fetch(self, conn: AsyncConnection[Any], text: str) -> AdhocResult:
        limits = self.limits
        started = time.monotonic()
        await conn.execute("BEGIN READ ONLY")
        # PostgreSQL prepares one statement at a time, and a cursor only for a query.
        await conn.execute(f"{_DECLARE}{text}", prepare=True)
        described = (await conn.execute("FETCH 0 FROM typed")).description or []
        columns = [_make_column(conn, column) for column in described[: limits.columns]]
        if not columns:
            return AdhocResult([], [], time.monotonic() - started)
        # The server shortens the values, because one can be a gigabyte.
        names = ", ".join(f"c{i}" for i in range(len(described)))
        values = ", ".join(f"left(c{i}::text, {limits.value_chars + 1:d})" for i in range(len(columns)))
        shortened = f"DECLARE short NO SCROLL CURSOR FOR SELECT {values} FROM (\n{text}\n) AS q ({names})"  # noqa: S608
        await conn.execute(shortened, prepare=True)
        rows: list[tuple[str | None, ...]] = []
        total_chars = 0
        while True:
            fetched = await (await conn.execute(f"FETCH {_FETCH_ROWS} FROM short")).fetchall()
            for row in fetched:
                if len(rows) == limits.rows:
                    return AdhocResult(columns, rows, time.monotonic() - started, "rows")
                if total_chars > limits.total_chars:
                    return AdhocResult(columns, rows, time.monotonic() - started, "size")
                shortened_row = tuple(_shorten(value, limits.value_chars) for value in row)
                total_chars += sum(len(value) for value in shortened_row if value is not None)
                rows.append(shortened_row)
            if len(fetched) < _FETCH_ROWS:
                truncation: Literal["columns"] | None = "columns" if len(described) > limits.columns else None
                return AdhocResult(columns, rows, time.monotonic() - started, truncation)

    async def _limit_memory(self, conn: AsyncConnection[Any]) -> None:
        had_warned = self.is_memory_limited is False
        self.is_memory_limited = await limit_backend_memory(conn, self.limits.memory_bytes)
        if not self.is_memory_limited and not had_warned:
            _logger.warning(
                "the memory of ad hoc queries is not limited, because PostgreSQL runs on another machine or as another "
                "account: limit it there, or set PENSTOCK_READER_URL to a replica"
            )

    async def _terminate(self, pid: int) -> None:
        """Terminate the backend, because a query can ignore a cancellation."""
        with suppress(psycopg.Error, DatabaseError):
            other = await self.login.connect()
            try:
                await other.execute(_sql["terminate"], {"pid": pid})
            finally:
                await other.close()


_DECLARE = "DECLARE typed NO SCROLL CURSOR FOR "
_QUERY = re.compile(r"\(*\s*(select|with|values|table)\b", re.IGNORECASE)


def _check_text(text: str) -> str:
    text = text.strip().rstrip(";").rstrip()
    if not text:
        raise StatementRefused("the query is empty", hint="Write a query, or pick one of the examples.")
    if len(text) > _MAX_STATEMENT_CHARS:
        raise StatementRefused(f"the query is longer than {_MAX_STATEMENT_CHARS:,} characters")
    problem = find_text_problem(text)
    if problem is not None:
        raise StatementRefused(f"the query {problem}")
    return text


def _make_column(conn: AsyncConnection[Any], described: psycopg.Column) -> AdhocColumn:
    info = conn.adapters.types.get(described.type_code)
    name = info.name if info is not None else described.type_display
    is_array = info is not None and described.type_code == info.array_oid
    return AdhocColumn(described.name, described.type_display, "text" if is_array else _KINDS.get(name, "text"))


def _shorten(value: str | None, max_chars: int) -> str | None:
    return value if value is None or len(value) <= max_chars else f"{value[:max_chars]}…"


def _make_refusal(error: psycopg.Error, text: str) -> StatementRefused:
    diag = error.diag
    message = diag.message_primary or str(error).strip() or type(error).__name__
    hint = " ".join(part for part in (diag.message_detail, diag.message_hint) if part)
    line = column = None
    if diag.statement_position is not None:
        index = int(diag.statement_position) - len(_DECLARE) - 1
        if 0 <= index <= len(text):
            line = text.count("\n", 0, index) + 1
            column = index - (text.rfind("\n", 0, index) + 1) + 1
    if isinstance(error, psycopg.errors.SyntaxError) and not _QUERY.match(text):
        hint = "Only one query can be run here: SELECT, WITH, VALUES or TABLE."
    elif isinstance(error, psycopg.errors.SyntaxError) and diag.statement_position is None:
        # Preparing several statements is the only syntax error without a position.
        message, hint = "the text contains more than one statement", "Run them one at a time."
    elif isinstance(error, psycopg.errors.InsufficientPrivilege):
        hint = hint or "This login can read results, the state of queues and queries, and the ledger: see the views."
    return StatementRefused(message, line=line, column=column, hint=hint)
