"""One statement that a person typed, answered within limits of time, rows and size.

What it may see is the login's business. What it may use up is ours: it runs on a connection of its own that is closed
afterwards, as a cursor in a read-only transaction that is always rolled back. So it is one query and nothing else,
whatever functions it calls, and nothing that it set, locked or announced outlives it. A statement can lift its own
``statement_timeout``; the clock that counts is here, and ends the server's process if need be.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import psycopg
from psycopg import AsyncConnection

from penstock.core.errors import DatabaseError, InvalidRequest, PenstockError
from penstock.db.readonly_login import ReaderLogin
from penstock.db.statements import Statements

_sql = Statements("penstock.db", "adhoc_query.sql")

#: Rows that are asked for at a time: as many long ones as a process can hold without noticing.
_STEP = 20
_LONGEST_TEXT = 100_000
#: Statements that run at once.
_AT_ONCE = 4

Kind: TypeAlias = Literal["number", "time", "truth", "text"]

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("int2", "int4", "int8", "float4", "float8", "numeric", "oid"), "number"),
    **dict.fromkeys(("timestamptz", "timestamp", "date"), "time"),
    "bool": "truth",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a statement may take, and how much of its answer is given."""

    seconds: float = 10.0
    rows: int = 1_000
    columns: int = 100
    #: Characters of one value, and of all of them.
    value: int = 2_000
    whole: int = 4_000_000


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an answer."""

    name: str
    type: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement gave, as text; ``cut`` says what of it was left out, if anything was."""

    columns: Sequence[Column]
    rows: Sequence[tuple[str | None, ...]]
    seconds: float
    cut: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A table or view that may be looked at, with the columns that may be."""

    schema: str
    name: str
    columns: Sequence[tuple[str, str]]


class StatementRefused(PenstockError):
    """PostgreSQL did not run it, or not to the end; ``line`` and ``column`` say where it is wrong, if that is known."""

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.hint = hint


class Questions:
    """Answers statements over the login that may only look."""

    def __init__(self, login: ReaderLogin, limits: Limits | None = None) -> None:
        self.login = login
        self.limits = limits or Limits()
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def ask(self, text: str) -> Answer:
        """Run a query and give its answer, or raise StatementRefused."""
        text = _checked(text)
        if self._free.locked():
            raise StatementRefused(f"{_AT_ONCE} statements run already: wait for one of them to end")
        async with self._free:
            conn = await self.login.connect()
            pid = conn.info.backend_pid
            done = False
            try:
                async with asyncio.timeout(self.limits.seconds):
                    answer = await self._answer(conn, text)
                done = True
                return answer
            except TimeoutError:
                raise StatementRefused(
                    f"it took longer than {self.limits.seconds:g} seconds and was stopped",
                    hint="Ask for less: a shorter time (WHERE window_end > now() - interval '1 hour'), or fewer keys.",
                ) from None
            except psycopg.Error as error:
                raise _refusal(error, text) from error
            finally:
                await conn.close()
                if not done:
                    await asyncio.shield(self._end(pid))

    async def seen(self) -> list[Seen]:
        """What may be looked at, by schema and name."""
        conn = await self.login.connect()
        try:
            rows = await (await conn.execute(_sql["seen"])).fetchall()
        finally:
            await conn.close()
        return [Seen(schema, name, list(zip(names, types, strict=True))) for schema, name, names, types in rows]

    async def _answer(self, conn: AsyncConnection[Any], text: str) -> Answer:
        limits = self.limits
        began = time.monotonic()
        await conn.execute("BEGIN READ ONLY")
        # Prepared, because of a prepared one there can only be one; as a cursor, because that can only be a query.
        await conn.execute(f"{_DECLARE}{text}", prepare=True)
        described = (await conn.execute("FETCH 0 FROM typed")).description or []
        columns = [_column(conn, each) for each in described[: limits.columns]]
        if not columns:
            return Answer([], [], time.monotonic() - began)
        # Cut where they are made: a value can be as large as a gigabyte.
        names = ", ".join(f"c{i}" for i in range(len(described)))
        values = ", ".join(f"left(c{i}::text, {limits.value + 1:d})" for i in range(len(columns)))
        shortened = f"DECLARE short NO SCROLL CURSOR FOR SELECT {values} FROM (\n{text}\n) AS q ({names})"  # noqa: S608
        await conn.execute(shortened, prepare=True)
        rows: list[tuple[str | None, ...]] = []
        size, cut = 0, "columns" if len(described) > limits.columns else None
        while True:
            some = await (await conn.execute(f"FETCH {_STEP} FROM short")).fetchall()
            for row in some:
                if len(rows) == limits.rows:
                    return Answer(columns, rows, time.monotonic() - began, "rows")
                if size > limits.whole:
                    return Answer(columns, rows, time.monotonic() - began, "size")
                values_of = tuple(_shortened(value, limits.value) for value in row)
                size += sum(len(value) for value in values_of if value is not None)
                rows.append(values_of)
            if len(some) < _STEP:
                return Answer(columns, rows, time.monotonic() - began, cut)

    async def _end(self, pid: int) -> None:
        """See to it that the server's process is gone, which a cancellation alone need not bring about."""
        with suppress(psycopg.Error, DatabaseError):
            other = await self.login.connect()
            try:
                await other.execute(_sql["end"], {"pid": pid})
            finally:
                await other.close()


_DECLARE = "DECLARE typed NO SCROLL CURSOR FOR "


def _checked(text: str) -> str:
    text = text.strip().rstrip(";").rstrip()
    if not text:
        raise StatementRefused("there is nothing to run", hint="Write a query, or pick one of the ready ones.")
    if len(text) > _LONGEST_TEXT:
        raise StatementRefused(f"it is longer than {_LONGEST_TEXT:,} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest("the statement is not text that UTF-8 can hold") from error
    if "\x00" in text:
        raise StatementRefused("it holds a character that PostgreSQL's text cannot (U+0000)")
    return text


def _column(conn: AsyncConnection[Any], described: psycopg.Column) -> Column:
    info = conn.adapters.types.get(described.type_code)
    name = info.name if info is not None else described.type_display
    is_array = info is not None and described.type_code == info.array_oid
    return Column(described.name, described.type_display, "text" if is_array else _KINDS.get(name, "text"))


def _shortened(value: str | None, longest: int) -> str | None:
    return value if value is None or len(value) <= longest else f"{value[:longest]}…"


def _refusal(error: psycopg.Error, text: str) -> StatementRefused:
    diag = error.diag
    message = diag.message_primary or str(error).strip() or type(error).__name__
    hint = " ".join(part for part in (diag.message_detail, diag.message_hint) if part)
    line = column = None
    if diag.statement_position is not None:
        place = int(diag.statement_position) - len(_DECLARE) - 1
        if 0 <= place <= len(text):
            line = text.count("\n", 0, place) + 1
            column = place - (text.rfind("\n", 0, place) + 1) + 1
    if isinstance(error, psycopg.errors.SyntaxError) and not re.match(
        r"\(*\s*(select|with|values|table)\b", text, re.I
    ):
        hint = "Only a query can be run here: SELECT, WITH, VALUES or TABLE, and one at a time."
    elif "multiple commands" in message:
        message, hint = "it is more than one statement", "Run them one at a time."
    elif isinstance(error, psycopg.errors.InsufficientPrivilege):
        hint = hint or "This login may look at results, at how things stand and at the ledger: see the list of views."
    return StatementRefused(message, line=line, column=column, hint=hint)
