"""The registered queries of a database: their definition, their lease and their tables."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import psycopg

from penstock.core.errors import Conflict, GroupBusy, InvalidRequest, NotFound, QueryChanged
from penstock.db.statements import Statements
from penstock.engine.results import result_tables
from penstock.engine.results.result_tables import ResultTables
from penstock.engine.views.drop_view import drop_view_statements
from penstock.stream.fingerprint import changes

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.engine.views.view_size import ViewState
    from penstock.engine.views.view_table import ViewTable
    from penstock.log.log import Log
    from penstock.log.queue_info import QueryState

_sql = Statements("penstock.engine", "query_registry.sql")


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """A query as listings show it."""

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
    is_stopped: bool

    @property
    def state(self) -> QueryState:
        if not self.is_running:
            return "stopped" if self.is_stopped else "failed"
        return "paused" if self.is_paused else "running"


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """A query that is about to run."""

    id: int
    is_new: bool
    #: The time of registration, by the database's clock.
    at: datetime
    #: The description of its first start, and the columns of its live view.
    description: list[str]
    columns: list[str]


class SourceView(NamedTuple):
    """A view that another query reads."""

    #: The Spark types of its columns.
    types: dict[str, str]
    changes: str | None
    created_at: datetime
    #: True if retention has dropped changes that a new reader needs.
    is_truncated: bool
    #: True if the reader has read changes of an earlier run of the view.
    has_outdated_reader: bool


class _StoredQuery(NamedTuple):
    id: int
    description: list[str]
    fingerprint: str
    has_tables: bool
    current_view: str | None
    now: datetime
    columns: list[str]


class Registry:
    def __init__(self, log: Log) -> None:
        self._log = log

    async def register(
        self, name: str, description: list[str], fingerprint: str, *, sink: str | None, history_seconds: float
    ) -> RegisteredQuery:
        """Register a query, or check that it is the same stream as the one registered under this name before."""
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
                if await (await conn.execute(_sql["find_client_query"], params)).fetchone() is not None:
                    raise Conflict(f"Queen clients already run a query {name!r}; give the stream another query_id")
                created = await (await conn.execute(_sql["create"], params)).fetchone()
                if created is not None:
                    await self._check_view_names(conn, name)
            query = await self._find(conn, name)
        if query is None:
            raise NotFound(f"query {name!r} was deleted during its start; start it again")
        if query.fingerprint != fingerprint:
            raise QueryChanged(
                name,
                changes(query.description, description),
                "Start it with reset=True to start over, or give the new stream another query_id "
                "(with subscription_from=... it can read from the same position)",
            )
        async with self._log.database.connection() as conn:
            await conn.execute(_sql["set_history_retention"], {"query": query.id, "history": history_seconds})
        return RegisteredQuery(query.id, created is not None, query.now, query.description, query.columns)

    async def acquire_lease(self, name: str, driver: str, lease_seconds: float, since: datetime) -> int | None:
        """Return a fencing number, or None if another driver has the lease or the query was stopped after ``since``."""
        params = {"name": name, "driver": driver, "lease": timedelta(seconds=lease_seconds), "since": since}
        async with self._log.database.connection() as conn:
            row = await (await conn.execute(_sql["acquire_lease"], params)).fetchone()
        return None if row is None else int(row[0])

    async def renew_lease(self, query: int, fence: int, lease_seconds: float) -> bool:
        """Extend the lease; False if another driver has taken the query over."""
        params = {"query": query, "fence": fence, "lease": timedelta(seconds=lease_seconds)}
        async with self._log.database.connection() as conn:
            return await (await conn.execute(_sql["renew_lease"], params)).fetchone() is not None

    async def release_lease(self, query: int, fence: int, *, stopped: bool = True) -> None:
        """Release the lease, if it is still held. ``stopped`` is False if the driver has failed."""
        async with self._log.database.connection() as conn:
            await conn.execute(_sql["release_lease"], {"query": query, "fence": fence, "stopped": stopped})

    async def current_fence(self, query: int) -> int | None:
        """Return the fencing number of the last driver; None if the query does not exist."""
        async with self._log.database.connection() as conn:
            row = await (await conn.execute(_sql["current_fence"], {"query": query})).fetchone()
        return None if row is None else int(row[0])

    async def store_field_types(self, query: int, types: dict[str, str]) -> None:
        """Store inferred types, so that the next start uses the same."""
        async with self._log.database.connection() as conn:
            await conn.execute(_sql["store_field_types"], {"query": query, "fields": json.dumps(types)})

    async def field_types(self, query: int) -> dict[str, str] | None:
        """Return the stored types of a query's fields; None if none are known."""
        async with self._log.database.connection() as conn:
            row = await (await conn.execute(_sql["field_types"], {"query": query})).fetchone()
        return None if row is None else cast("dict[str, str] | None", row[0])

    async def has_no_cycles(self, query: int) -> bool:
        """Return whether no cycle of the query was ever planned."""
        async with self._log.database.connection() as conn:
            row = await (await conn.execute(_sql["find_without_cycles"], {"query": query})).fetchone()
        return row is not None

    async def create_tables(self, result: ResultTables) -> None:
        """Create the query's tables and views, if they do not exist."""
        async with self._log.database.connection() as conn, conn.transaction():
            await conn.execute(_sql["lock_catalog"])
            query = await self._find(conn, result.name)
            if query is None:
                return
            if query.has_tables:
                if query.current_view is None:  # a query of an earlier version
                    await self._create_current_view(conn, result)
                return
            with _invalid_columns():
                for statement in result.create_statements():
                    await conn.execute(statement, prepare=False)
            params = {"query": result.query_id, "result": json.dumps({"part": result.state_part()})}
            await conn.execute(_sql["set_result"], params)
            await self._create_current_view(conn, result)
            await self._replace_state_view(conn)

    async def create_view_table(self, table: ViewTable, state: ViewState) -> None:
        """Create the table of a view's result, if it does not exist, and store what its state consists of."""
        async with self._log.database.connection() as conn, conn.transaction():
            await conn.execute(_sql["lock_catalog"])
            if await self._find(conn, table.name) is None:
                return
            for statement in table.create_statements():
                await conn.execute(statement, prepare=False)
            params = {
                "query": table.query_id,
                "view": json.dumps(table.to_json()),
                "state": json.dumps(dataclasses.asdict(state)),
            }
            await conn.execute(_sql["set_view"], params)

    async def source_view(self, name: str, reader: str) -> SourceView | None:
        """Return a view that a query reads; None if there is no such view, or it was never prepared."""
        async with self._log.database.connection() as conn:
            row = await (await conn.execute(_sql["source_view"], {"name": name, "reader": reader})).fetchone()
        if row is None:
            return None
        view, *others = row
        types = {each["name"]: each["spark_type"] for each in view["columns"] if not each["is_hidden"]}
        return SourceView(types, *others)

    async def delete(self, name: str) -> bool:
        """Delete a query with its state, its history and its consumer groups; False if there is no such query.

        Raises:
            GroupBusy: the query is running.
        """
        async with self._log.database.connection() as conn, conn.transaction():
            await conn.execute(_sql["lock_catalog"])
            row = await (await conn.execute(_sql["lock"], {"name": name})).fetchone()
            if row is None:
                return False
            query_id, is_running, current_view = row
            if is_running:
                raise GroupBusy(f"query {name!r} is running; stop it first")
            await conn.execute(_sql["set_result"], {"query": query_id, "result": None})
            await self._replace_state_view(conn)
            if current_view is not None:
                await conn.execute(result_tables.drop_current_view(current_view), prepare=False)
            for statement in (
                *result_tables.drop_statements(query_id, name),
                *drop_view_statements(query_id, name),
            ):
                await conn.execute(statement, prepare=False)
            await self._log.consumer_groups.delete_of_query(conn, name)
            await conn.execute(_sql["delete"], {"query": query_id})
        return True

    async def list(self) -> Sequence[QueryInfo]:
        async with self._log.database.connection() as conn:
            rows = await (await conn.execute(_sql["list"])).fetchall()
        return [QueryInfo(*row) for row in rows]

    async def _check_view_names(self, conn: AsyncConnection[Any], name: str) -> None:
        row = await (await conn.execute(_sql["find_same_view"], {"name": name})).fetchone()
        if row is not None:
            raise Conflict(
                f"the views of the queries {name!r} and {row[0]!r} would have one name: penstock_live has a view "
                "NAME_current for each query NAME; give the stream another query_id"
            )

    async def _create_current_view(self, conn: AsyncConnection[Any], result: ResultTables) -> None:
        """Create the view of current windows, unless its name is too long or that of a query of an earlier version."""
        view = result_tables.current_view_name(result.name)
        if view is None or await (await conn.execute(_sql["find_query_named"], {"name": view})).fetchone() is not None:
            return
        await conn.execute(result.create_current_view(view), prepare=False)
        await conn.execute(_sql["set_current_view"], {"query": result.query_id, "view": view})

    async def _find(self, conn: AsyncConnection[Any], name: str) -> _StoredQuery | None:
        row = await (await conn.execute(_sql["find"], {"name": name})).fetchone()
        return None if row is None else _StoredQuery._make(row)

    async def _replace_state_view(self, conn: AsyncConnection[Any]) -> None:
        """Create the view over the open windows of all queries again."""
        rows = await (await conn.execute(_sql["results"])).fetchall()
        await conn.execute(result_tables.all_states_view([result["part"] for (result,) in rows]), prepare=False)


@contextmanager
def _invalid_columns() -> Iterator[None]:
    """Raise InvalidRequest for column expressions that PostgreSQL rejects."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege:
        raise
    except (psycopg.errors.DataError, psycopg.errors.ProgrammingError) as error:
        message = error.diag.message_primary or str(error)
        raise InvalidRequest(
            f"PostgreSQL cannot compute the columns of the closed windows: {message}; "
            "convert values to another type with CAST"
        ) from error
