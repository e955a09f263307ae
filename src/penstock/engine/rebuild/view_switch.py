"""The transactions that give a view another definition, in place or by a switch to another version."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import AsyncConnection, sql

from penstock.core.errors import Conflict, LeaseLost
from penstock.db.statements import Statements, fill_placeholders
from penstock.engine.cycle.output_events import partition_outputs
from penstock.engine.rebuild.stored_view import StoredView, check_readers
from penstock.engine.views.drop_view import drop_view_statements
from penstock.engine.views.view_changes import ViewChanges, change_events
from penstock.engine.views.view_reader import ViewColumn
from penstock.engine.views.view_table import index_statements, show_statement
from penstock.log.catalog import MAX_LAYOUT_RETRIES, is_layout_change
from penstock.log.log import Log
from penstock.log.write.flush import AppendRequest

_sql = Statements("penstock.engine.rebuild", "view_switch.sql")

_T = TypeVar("_T")

#: Readers of the view wait while a lock on it is awaited, so that the wait is short, and repeated.
_LOCK_TIMEOUT, _LOCK_PAUSE_SECONDS, _LOCK_ATTEMPTS = "2s", 3.0, 100


@dataclass(frozen=True)
class NewDefinition:
    """The definition that a view gets."""

    name: str
    lines: list[str]
    fingerprint: str
    #: The queue of its changes.
    sink: str | None
    indexes: Sequence[Sequence[str]]
    history_seconds: float


class NotCaughtUp(Exception):
    """The old version of a view has read events that the new version has not."""


class _CycleNumber(NamedTuple):
    cycle: int
    now: datetime


class ViewSwitch:
    """Stores a new definition of a view."""

    def __init__(self, log: Log, definition: NewDefinition) -> None:
        self._log = log
        self._definition = definition

    async def change(self, view: StoredView, fence: int, changes: ViewChanges | None, lease_seconds: float) -> None:
        """Store the definition of a view that keeps its state.

        Args:
            view: The view.
            fence: The fencing number of its driver.
            changes: All rows as rows that appear, if their changes go to a queue from now on.
            lease_seconds: For how long the lease is extended: it takes time to create an index.
        """
        definition = self._definition

        async def store(conn: AsyncConnection[Any]) -> AppendRequest | None:
            await _lock_held(conn, definition.name, [(view.id, fence)])
            if view.sink != definition.sink:
                types = {column.name: column.spark_type for column in view.visible}
                await check_readers(conn, definition.name, types, keeps_changes=False)
            wanted = index_statements(view.id, definition.indexes) if view.columns else {}
            for (name,) in await (await conn.execute(_sql["indexes"], {"view": view.id})).fetchall():
                if name not in wanted:
                    await conn.execute(fill_placeholders(_sql["drop_index"], name=_identifier(name)), prepare=False)
            for statement in wanted.values():
                await conn.execute(statement, prepare=False)
            if view.sink != definition.sink:
                # Other views read the changes from here on.
                await conn.execute(_sql["restart_changes"], {"query": view.id})
            request = None if changes is None else await self._append(conn, view.id, changes, view.columns, None)
            params = {"query": view.id, "indexes": _to_json(definition), "lease": timedelta(seconds=lease_seconds)}
            await conn.execute(_sql["store_definition"], {**params, **self._params()})
            return request

        await self._run(store)

    async def switch(
        self, old: StoredView, old_fence: int, new: StoredView, new_fence: int, changes: ViewChanges | None
    ) -> None:
        """Replace a view by its new version, and append the difference between their rows to the changes queue.

        Raises:
            LeaseLost: Another driver has one of the two versions.
            NotCaughtUp: The new version has to read more first.
        """
        definition = self._definition
        name = definition.name

        async def replace(conn: AsyncConnection[Any]) -> AppendRequest | None:
            await _lock_held(conn, name, [(old.id, old_fence), (new.id, new_fence)])
            behind = await conn.execute(_sql["is_behind"], {"old": old.name, "new": new.name})
            if await behind.fetchone() != (False,):
                raise NotCaughtUp
            types: dict[str, str | None] = {column.name: column.spark_type for column in new.visible}
            await check_readers(conn, name, types, keeps_changes=old.sink == definition.sink)
            params = {"old": old.id, "new": new.id, "old_name": old.name, "new_name": new.name}
            await conn.execute(_sql["inherit"], {**params, "keeps_changes": old.sink == definition.sink})
            request = None
            if changes is not None:
                request = await self._append(conn, new.id, changes, new.columns, old.columns)
            await self.show_new_version(conn, old, new)
            await conn.execute(_sql["delete_dead_letters"], params)
            await self._log.consumer_groups.delete_of_query(conn, old.name)
            for statement in drop_view_statements(old.id, new.name):
                await conn.execute(statement, prepare=False)
            for statement in ("delete_old", "rename_groups", "rename_dead_letters"):
                await conn.execute(_sql[statement], params)
            params = {"query": new.id, "indexes": _to_json(definition), "lease": timedelta(0)}
            await conn.execute(_sql["store_definition"], {**params, **self._params()})
            return request

        try:
            await self._run(replace)
        except psycopg.errors.DependentObjectsStillExist as error:
            raise Conflict(
                f"the columns of the view {name!r} change, and other objects of the database depend on it: "
                f"{error.diag.message_detail}. Drop them, start it again, and create them again"
            ) from None

    async def show_new_version(self, conn: AsyncConnection[Any], old: StoredView, new: StoredView) -> None:
        """Let ``penstock_live.<name>`` show the new version. It stays the same view if it has the same columns."""
        shape = [[(column.name, column.pg_type) for column in view.visible] for view in (old, new)]
        params = {"name": old.name}
        grants: list[tuple[str]] = []
        if shape[0] != shape[1]:
            grants = await (await conn.execute(_sql["grants"], params)).fetchall()
            await conn.execute(fill_placeholders(_sql["drop_view"], view=_identifier(old.name)), prepare=False)
        await conn.execute(show_statement(new.id, old.name, new.columns), prepare=False)
        for (statement,) in grants:
            await conn.execute(statement.encode(), prepare=False)

    async def _append(
        self,
        conn: AsyncConnection[Any],
        query: int,
        changes: ViewChanges,
        columns: Sequence[ViewColumn],
        old_columns: Sequence[ViewColumn] | None,
    ) -> AppendRequest | None:
        row = await (await conn.execute(_sql["next_cycle"], {"query": query})).fetchone()
        assert row is not None  # noqa: S101 - the row is locked
        number = _CycleNumber(*row)
        events = change_events(changes, columns, number.cycle, number.now, old_columns=old_columns)
        if not len(events) or self._definition.sink is None:
            return None
        request = AppendRequest([partition_outputs(await self._log.catalog.get(self._definition.sink), events)])
        await self._log.appender.append_on(conn, [request], await self._log.appender.partition_ids([request]))
        return request

    async def _run(self, action: Callable[[AsyncConnection[Any]], Awaitable[AppendRequest | None]]) -> None:
        """Run a transaction, again if the queue of the changes has got a new segment or the view is locked."""
        for attempt in count(1):
            try:
                async with self._log.database.connection() as conn, conn.transaction():
                    await conn.execute(_sql["lock_timeout"], {"timeout": _LOCK_TIMEOUT})
                    await conn.execute(_sql["lock_catalog"])
                    request = await action(conn)
            except psycopg.errors.LockNotAvailable as error:
                if attempt == _LOCK_ATTEMPTS:
                    raise Conflict(
                        f"the view {self._definition.name!r} is locked all the time, by a transaction that reads it: "
                        "end that transaction, and start the view again"
                    ) from error
                await asyncio.sleep(_LOCK_PAUSE_SECONDS)
            except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
                if attempt > MAX_LAYOUT_RETRIES:
                    raise
            except psycopg.ProgrammingError as error:
                if not is_layout_change(error) or attempt > MAX_LAYOUT_RETRIES or self._definition.sink is None:
                    raise
                await self._log.catalog.refresh(self._definition.sink)
            else:
                if request is not None:
                    self._log.appender.announce([request])
                return

    def _params(self) -> dict[str, Any]:
        definition = self._definition
        return {
            "name": definition.name,
            "description": definition.lines,
            "fingerprint": definition.fingerprint,
            "sink": definition.sink,
            "history": definition.history_seconds,
        }


async def _lock_held(conn: AsyncConnection[Any], name: str, held: Sequence[tuple[int, int]]) -> None:
    """Lock the rows of queries. Raises LeaseLost if one of them has another driver, or was deleted."""
    params = {"queries": [query for query, _ in held], "fences": [fence for _, fence in held]}
    rows = await (await conn.execute(_sql["lock_held"], params)).fetchall()
    if len(rows) < len(held):
        raise LeaseLost(f"query {name!r} was taken over by another driver")


def _to_json(definition: NewDefinition) -> str:
    return json.dumps([list(columns) for columns in definition.indexes])


def _identifier(name: str) -> str:
    return sql.Identifier(name).as_string()
