"""The registered queries of a database: their definition, their lease and their tables."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from penstock.core.errors import Conflict, GroupBusy, InvalidRequest, NotFound, QueryChanged, QueryReplaced
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements
from penstock.engine.results import result_tables
from penstock.engine.results.result_tables import ResultTables
from penstock.engine.views.drop_view import drop_view_statements
from penstock.stream.fingerprint import changes, is_view, keeps_state

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
    def is_view(self) -> bool:
        """Whether it is a materialized view."""
        return is_view(self.description)

    @property
    def is_rebuild(self) -> bool:
        """Whether it computes a new version of a view, which is not shown yet."""
        return bool(self.description) and self.description[0].startswith(rebuild_line(""))

    @property
    def state(self) -> QueryState:
        if not self.is_running:
            return "stopped" if self.is_stopped else "failed"
        return "paused" if self.is_paused else "running"


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """A query that is about to run."""

    id: int
    name: str
    #: The hash of the stored definition.
    fingerprint: str
    is_new: bool
    #: The time of registration, by the database's clock.
    at: datetime
    #: The description of its first start, and the columns of its live view.
    description: list[str]
    columns: list[str]
    #: Whether it is a view whose definition changed in a way that keeps its state. The driver stores the new one.
    is_changed: bool = False


def rebuild_name(view: str) -> str:
    """The name of the query that computes a new version of a view beside the old one."""
    return f"{view}:rebuild"


def rebuild_line(view: str) -> str:
    """The first line of the description of such a query."""
    return f"rebuild of: {view}"


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
    #: True while a new version of it is computed.
    is_rebuilt: bool


class _StoredQuery(NamedTuple):
    id: int
    description: list[str]
    fingerprint: str
    has_tables: bool
    current_view: str | None
    now: datetime
    columns: list[str]
    is_prepared_view: bool


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
        is_changed = query.fingerprint != fingerprint
        if is_changed and not keeps_state(query.description, description):
            raise _changed(name, query.description, description)
        async with self._log.database.connection() as conn:
            await conn.execute(_sql["set_history_retention"], {"query": query.id, "history": history_seconds})
        return RegisteredQuery(
            query.id,
            name,
            query.fingerprint,
            created is not None,
            query.now,
            query.description,
            query.columns,
            is_changed,
        )

    async def acquire_lease(self, query: RegisteredQuery, driver: str, lease_seconds: float) -> int | None:
        """Return a fencing number; None if another driver has the lease or the query was stopped after its start here.

        Raises:
            QueryReplaced: The query was deleted, or has another definition.
        """
        params = {
            "query": query.id,
            "name": query.name,
            "fingerprint": query.fingerprint,
            "driver": driver,
            "lease": timedelta(seconds=lease_seconds),
            "since": query.at,
        }
        async with self._log.database.connection() as conn:
            fence: int | None = await fetch_scalar(conn, _sql["acquire_lease"], params)
            if fence is not None or await fetch_scalar(conn, _sql["find_registered"], params) is not None:
                return fence
        raise QueryReplaced(
            f"query {query.name!r} was deleted, or another version of it was started: this driver has the old one. "
            "Nothing is lost: start it with the current definition"
        )

    async def seize_lease(self, query: int, fingerprint: str, driver: str, lease_seconds: float) -> int | None:
        """Take the lease from the driver that holds it. Returns a fencing number; None for another definition."""
        params = {
            "query": query,
            "fingerprint": fingerprint,
            "driver": driver,
            "lease": timedelta(seconds=lease_seconds),
        }
        async with self._log.database.connection() as conn:
            fence: int | None = await fetch_scalar(conn, _sql["seize_lease"], params)
        return fence

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
            fence: int | None = await fetch_scalar(conn, _sql["current_fence"], {"query": query})
        return fence

    async def store_field_types(self, query: int, types: dict[str, str]) -> None:
        """Store inferred types, so that the next start uses the same."""
        async with self._log.database.connection() as conn:
            await conn.execute(_sql["store_field_types"], {"query": query, "fields": json.dumps(types)})

    async def field_types(self, query: int) -> dict[str, str] | None:
        """Return the stored types of a query's fields; None if none are known."""
        async with self._log.database.connection() as conn:
            types: dict[str, str] | None = await fetch_scalar(conn, _sql["field_types"], {"query": query})
        return types

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
            if query is None or query.id != result.query_id:
                return  # it was deleted or replaced meanwhile
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
            query = await self._find(conn, table.name)
            if query is None or query.id != table.query_id:
                return  # it was deleted or replaced meanwhile
            statements = table.create_statements()
            if not query.is_prepared_view:
                # Later changes of the indexes are for the driver: to create one, the table is locked.
                statements += table.index_statements().values()
            for statement in statements:
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
            row = await (
                await conn.execute(_sql["source_view"], {"name": name, "reader": reader, "rebuild": rebuild_name(name)})
            ).fetchone()
        if row is None:
            return None
        view, *others = row
        types = {each["name"]: each["spark_type"] for each in view["columns"] if not each["is_hidden"]}
        return SourceView(types, *others)

    async def delete(self, name: str, *, starts_over: bool = False) -> bool:
        """Delete a query with its state, its history and its consumer groups; False if there is no such query.

        A stored view is deleted with its statement, also if it has not run yet.

        Args:
            name: The query.
            starts_over: The query is started again: views that read it may exist, and are started over after it.

        Raises:
            GroupBusy: The query is running.
            Conflict: Other views read it.
        """
        async with self._log.database.connection() as conn, conn.transaction():
            await conn.execute(_sql["lock_catalog"])
            if not starts_over:
                await self._check_not_read(conn, name)
            rebuild = await self._find(conn, rebuild_name(name))
            if rebuild is not None and rebuild.description[:1] == [rebuild_line(name)]:
                await self._delete(conn, rebuild_name(name))
            is_deleted = await self._delete(conn, name)
            if starts_over:
                return is_deleted
            is_stored = await fetch_scalar(conn, _sql["delete_stored"], {"name": name}) is not None
            return is_deleted or is_stored

    async def _delete(self, conn: AsyncConnection[Any], name: str) -> bool:
        row = await (await conn.execute(_sql["lock"], {"name": name})).fetchone()
        if row is None:
            return False
        query_id, is_running, current_view = row
        if is_running:
            raise GroupBusy(f"query {name!r} is running: stop it first, `penstock query stop {quote(name)}`")
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

    async def check_not_read(self, name: str) -> None:
        """Raise Conflict if views read the view."""
        async with self._log.database.connection() as conn:
            await self._check_not_read(conn, name)

    async def list(self) -> Sequence[QueryInfo]:
        async with self._log.database.connection() as conn:
            rows = await (await conn.execute(_sql["list"])).fetchall()
        return [QueryInfo(*row) for row in rows]

    async def _check_view_names(self, conn: AsyncConnection[Any], name: str) -> None:
        other = await fetch_scalar(conn, _sql["find_same_view"], {"name": name})
        if other is not None:
            raise Conflict(
                f"the views of the queries {name!r} and {other!r} would have one name: penstock_live has a view "
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

    async def _check_not_read(self, conn: AsyncConnection[Any], name: str) -> None:
        rows = await (await conn.execute(_sql["readers"], {"name": name})).fetchall()
        readers = [reader for (reader,) in rows]
        if readers:
            raise Conflict(
                f"the view {name!r} is read by {', '.join(map(repr, readers))}: delete what reads it first, "
                f"`penstock query delete {quote(readers[0])}`"
            )

    async def _replace_state_view(self, conn: AsyncConnection[Any]) -> None:
        """Create the view over the open windows of all queries again."""
        rows = await (await conn.execute(_sql["results"])).fetchall()
        await conn.execute(result_tables.all_states_view([result["part"] for (result,) in rows]), prepare=False)


def _changed(name: str, before: list[str], after: list[str]) -> QueryChanged:
    if is_view(before) and is_view(after):
        advice = (
            "Start it with rebuild=True to compute the new version beside the old one and then switch, with reset=True "
            "to start over, or give the new view another name"
        )
        return QueryChanged(name, changes(before, after), advice, is_view=True)
    advice = (
        "Start it with reset=True to start over, or give the new stream another query_id "
        "(with subscription_from=... it can read from the same position)"
    )
    return QueryChanged(name, changes(before, after), advice)


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
