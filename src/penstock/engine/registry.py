"""Queries as the database knows them: what they are, who drives them, and the tables they fill."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.core.errors import Conflict, GroupBusy, InvalidRequest, NotFound, QueryChanged
from penstock.db.statements import Statements
from penstock.engine import result_tables
from penstock.engine.result_tables import ResultTables
from penstock.stream.fingerprint import changes

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.engine.joins.state import WaitingTable
    from penstock.log.log import Log

_sql = Statements("penstock.engine", "registry.sql")


@contextmanager
def _understood() -> Iterator[None]:
    """Around what has PostgreSQL read the fields of a stream: what it does not understand is a mistake in them."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege:
        raise
    except (psycopg.errors.DataError, psycopg.errors.ProgrammingError) as error:
        said = error.diag.message_primary or str(error)
        raise InvalidRequest(
            f"PostgreSQL does not understand what is computed of the closed windows: {said}; "
            "CAST makes a value one of another type"
        ) from error


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """A query as the catalog shows it."""

    id: int
    name: str
    description: list[str]
    sink: str | None
    driver: str | None
    is_running: bool
    fence: int
    cycle: int
    created_at: datetime
    committed_at: datetime | None
    is_paused: bool

    @property
    def state(self) -> str:
        """In a word."""
        if not self.is_running:
            return "stopped"
        return "paused" if self.is_paused else "running"


@dataclass(frozen=True, slots=True)
class Registered:
    """A query that is about to run."""

    id: int
    #: The types of its fields, if they are known.
    fields: dict[str, str] | None
    is_new: bool
    #: By the database's clock.
    at: datetime
    #: As it was first started, and what its live view shows.
    description: list[str]
    columns: list[str]


class Registry:
    """All queries of a database."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def register(
        self, name: str, description: list[str], fingerprint: str, *, sink: str | None, history_seconds: float
    ) -> Registered:
        """Make the query, or find that it is the one that was started under this id before."""
        async with self._log.database.connection() as conn:
            params = {
                "name": name,
                "description": description,
                "fingerprint": fingerprint,
                "sink": sink,
                "history": history_seconds,
            }
            async with conn.transaction():
                await conn.execute(_sql["lock_catalog"])
                if await (await conn.execute(_sql["is_shared"], params)).fetchone() is not None:
                    raise Conflict(
                        f"query {name!r} is one that clients of the message plane compute for themselves; "
                        "give the stream a query_id of its own"
                    )
                made = await (await conn.execute(_sql["create"], params)).fetchone()
            row = await (await conn.execute(_sql["find"], {"name": name})).fetchone()
        if row is None:
            raise NotFound(f"query {name!r} was deleted meanwhile; start it again")
        if row[2] != fingerprint:
            raise QueryChanged(
                f"query {name!r} was started before as another stream, and its open windows would be wrong:\n"
                f"{changes(row[1], description)}\n"
                "Start it with reset=True to begin anew, or give the new stream a query_id of its own "
                "(with subscription_from=... it can read from the same place)"
            )
        return Registered(row[0], row[3], made is not None, row[5], row[1], row[6])

    async def take(self, name: str, driver: str, lease_seconds: float, since: datetime) -> int | None:
        """A fencing number, if nobody else drives the query, and it was not stopped since this driver was started."""
        params = {"name": name, "driver": driver, "lease": timedelta(seconds=lease_seconds), "since": since}
        async with self._log.database.connection() as conn:
            row = await (await conn.execute(_sql["take"], params)).fetchone()
        return None if row is None else int(row[1])

    async def keep(self, query: int, fence: int, lease_seconds: float) -> bool:
        """Hold the query for longer; False if somebody else has it."""
        params = {"query": query, "fence": fence, "lease": timedelta(seconds=lease_seconds)}
        async with self._log.database.connection() as conn:
            return await (await conn.execute(_sql["keep"], params)).fetchone() is not None

    async def release(self, query: int, fence: int) -> None:
        """Let somebody else have the query."""
        async with self._log.database.connection() as conn:
            await conn.execute(_sql["release"], {"query": query, "fence": fence})

    async def set_fields(self, query: int, fields: dict[str, str]) -> None:
        """Keep the types that were inferred, so that the next start reads the same."""
        async with self._log.database.connection() as conn:
            await conn.execute(_sql["set_fields"], {"query": query, "fields": json.dumps(fields)})

    async def fields(self, query: int) -> dict[str, str] | None:
        """The types of a query's fields, if they are known."""
        async with self._log.database.connection() as conn:
            row = await (await conn.execute(_sql["fields"], {"query": query})).fetchone()
        found: dict[str, str] | None = None if row is None else row[0]
        return found

    async def never_ran(self, query: int) -> bool:
        """Whether not one cycle of the query was ever planned."""
        async with self._log.database.connection() as conn:
            row = await (await conn.execute(_sql["never_ran"], {"query": query})).fetchone()
        return row is not None

    async def make_tables(self, result: ResultTables) -> None:
        """Make the query's tables and views, if they are not there."""
        async with self._log.database.connection() as conn, conn.transaction():
            await conn.execute(_sql["lock_catalog"])
            row = await (await conn.execute(_sql["find"], {"name": result.name})).fetchone()
            if row is not None and row[4] is not None and result.by_key:
                await conn.execute(result.history_keys(), prepare=False)  # a version before did not make it
            if row is None or row[4] is not None:
                return
            with _understood():
                for statement in result.creation():
                    await conn.execute(statement, prepare=False)
            params = {"query": result.query, "result": json.dumps({"part": result.state_part()})}
            await conn.execute(_sql["set_result"], params)
            await self._show_all(conn)

    async def make_waiting(self, waiting: WaitingTable) -> None:
        """Make the table of what waits in a join, if it is not there."""
        async with self._log.database.connection() as conn, conn.transaction():
            await conn.execute(_sql["lock_catalog"])
            for statement in waiting.creation():
                await conn.execute(statement, prepare=False)

    async def delete(self, name: str) -> bool:
        """Forget a query that is not running, with its state, its history and its place in the queues."""
        async with self._log.database.connection() as conn, conn.transaction():
            await conn.execute(_sql["lock_catalog"])
            row = await (await conn.execute(_sql["lock"], {"name": name})).fetchone()
            if row is None:
                return False
            if row[2]:
                raise GroupBusy(f"query {name!r} is running; stop it first")
            await conn.execute(_sql["set_result"], {"query": row[0], "result": None})
            await self._show_all(conn)
            for statement in result_tables.removal(row[0], name):
                await conn.execute(statement, prepare=False)
            await self._log.group_book.delete_of_query(conn, name)
            await conn.execute(_sql["delete"], {"query": row[0]})
        return True

    async def list(self) -> Sequence[QueryInfo]:
        """Every query."""
        async with self._log.database.connection() as conn:
            rows = await (await conn.execute(_sql["list"])).fetchall()
        return [QueryInfo(*row) for row in rows]

    async def _show_all(self, conn: AsyncConnection[Any]) -> None:
        rows = await (await conn.execute(_sql["results"])).fetchall()
        await conn.execute(result_tables.all_states([result["part"] for _, _, result in rows]), prepare=False)
