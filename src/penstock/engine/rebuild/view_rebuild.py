"""Gives a view another definition: in place if its state can stay, else by computing a new version beside the old one.

The new version is a query of its own, ``<name>:rebuild``, without a changes queue. It reads the log from where the
old version began, in passes that each process what is there. Once a pass is short, the old driver is fenced off, a last
pass reads what is left, and one transaction switches (``view_switch.py``). Until then the old version stays as it is,
and its standby drivers continue if this process ends. After a crash, the next start with ``rebuild`` continues.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from pyspark.sql import SparkSession

from penstock.core.errors import Conflict, DatabaseUnavailable, InvalidRequest, LeaseLost, QueryChanged, QueryReplaced
from penstock.core.event_loop import EventLoopThread
from penstock.db.retry import CONNECTION_ERRORS
from penstock.db.statements import Statements
from penstock.engine import query_commands
from penstock.engine.query_registry import RegisteredQuery, Registry, rebuild_line, rebuild_name
from penstock.engine.query_status import Status
from penstock.engine.rebuild.lease_keeper import driver_name, keep_lease, renew_lease
from penstock.engine.rebuild.stored_view import StoredView, check_readers, find_view
from penstock.engine.rebuild.view_rows import compare_rows, have_equal_columns, read_rows, with_keys
from penstock.engine.rebuild.view_switch import NewDefinition, NotCaughtUp, ViewSwitch
from penstock.engine.run_options import RunOptions
from penstock.engine.views.view_changes import ViewChanges
from penstock.log.log import Log
from penstock.stream.definition import Definition
from penstock.stream.fingerprint import describe, fingerprint, is_view, keeps_state
from penstock.stream.views.view_plan import output_columns

_logger = logging.getLogger("penstock.engine")
_sql = Statements("penstock.engine.rebuild", "view_rebuild.sql")

#: The old driver is fenced off once a pass took less.
_SHORT_PASS_SECONDS = 20.0
_POLL_SECONDS, _PAUSE_SECONDS = 0.25, 1.0
#: Failures after which the rebuild goes on: nothing was switched, or it is found to have been.
_GO_ON_AFTER = (*CONNECTION_ERRORS, LeaseLost, DatabaseUnavailable)
_MAX_FAILURES = 20


class Pass(Protocol):
    """A query that reads what is there, and ends."""

    @property
    def status(self) -> Status: ...

    def wait(self, timeout: float | None = None) -> bool: ...

    def ask_to_stop(self) -> None: ...


@dataclass(frozen=True)
class RebuildContext:
    log: Log
    registry: Registry
    spark: SparkSession
    options: RunOptions
    event_loop: EventLoopThread
    #: Starts a query for the new version: its stream and its name.
    start_pass: Callable[[Definition, str], Pass]
    stopping: threading.Event
    #: Is told the status of each pass.
    on_progress: Callable[[Status], None]


def view_definition(name: str, stream: Definition, history_seconds: float) -> NewDefinition:
    lines = describe(stream)
    indexes = () if stream.view is None else stream.view.indexes
    return NewDefinition(name, lines, fingerprint(lines), stream.sink, indexes, history_seconds)


async def change_in_place(
    log: Log, registry: Registry, spark: SparkSession, definition: NewDefinition, fence: int, lease_seconds: float
) -> None:
    """Store the definition of a view that keeps its state. The caller holds its lease."""
    view = await find_view(log, definition.name)
    if view is None:
        raise QueryReplaced(f"query {definition.name!r} was deleted during its start; start it again")
    async with keep_lease(registry, view.id, fence, lease_seconds):
        changes = None
        if definition.sink is not None and definition.sink != view.sink and view.columns:
            rows = await read_rows(log.database, view)
            changes = await asyncio.to_thread(lambda: compare_rows(None, with_keys(spark, view, rows), None))
        await ViewSwitch(log, definition).change(view, fence, changes, lease_seconds)


class ViewRebuild:
    """Computes the new version of a view and switches to it."""

    def __init__(self, context: RebuildContext, stream: Definition, name: str) -> None:
        self._context = context
        self._run = context.event_loop.run
        self._name = name
        self._definition = view_definition(name, stream, context.options.history_retention_seconds)
        self._new_name = rebuild_name(name)
        self._new_stream = replace(stream, sink=None, sink_bindings=())

    def is_needed(self) -> bool:
        """Whether there is a version of the view that has to be replaced."""
        old = self._run(find_view(self._context.log, self._name))
        definition = self._definition
        return (
            old is not None
            and old.fingerprint != definition.fingerprint
            and is_view(old.description)
            and not keeps_state(old.description, definition.lines)
        )

    def run(self) -> None:
        """Return once the new version has replaced the old one, or the query is to stop."""
        failures = 0
        while not self._context.stopping.is_set() and self.is_needed():
            try:
                self._rebuild()
            except QueryReplaced:
                continue  # another process has switched
            except NotCaughtUp:
                pass  # the old version went on meanwhile
            except InvalidRequest:
                self._run(self._context.registry.delete(self._new_name))
                raise
            except _GO_ON_AFTER as error:
                failures += 1
                if failures > _MAX_FAILURES:
                    raise
                _logger.warning("the rebuild of the view %r goes on after a failure: %s", self._name, error)
            self._context.stopping.wait(_PAUSE_SECONDS)

    def _rebuild(self) -> None:
        context = self._context
        registered = self._run(self._register())
        while True:
            began = time.monotonic()
            self._run_pass(registered)
            if context.stopping.is_set():
                return
            new = self._run(find_view(context.log, self._new_name))
            if new is None or not new.columns:
                if context.options.available_now:
                    raise InvalidRequest(
                        f"the new version of the view {self._name!r} cannot be computed yet: a queue that it reads "
                        "has no event from which to infer types. Declare them, or start it without available_now"
                    )
                return  # the next pass waits for the first event, too
            if time.monotonic() - began < _SHORT_PASS_SECONDS:
                break
        self._run(self._check_columns(new))
        self._take_over(registered)

    async def _register(self) -> RegisteredQuery:
        """Register the query of the new version, or find that of a rebuild that did not end."""
        context, name = self._context, self._name
        old = await find_view(context.log, name)
        if old is None:
            raise QueryReplaced(f"query {name!r} was deleted; start it again")
        view = self._new_stream.view
        assert view is not None  # noqa: S101 - only views are rebuilt
        columns: dict[str, str | None] = dict.fromkeys(output_columns(view.root))
        async with context.log.database.connection() as conn:
            await check_readers(conn, name, columns, keeps_changes=old.sink == self._definition.sink)
        lines = [rebuild_line(name), *describe(self._new_stream)]
        existing = await find_view(context.log, self._new_name)
        if existing is not None and list(existing.description[:1]) != [rebuild_line(name)]:
            raise Conflict(
                f"the name {self._new_name!r} is needed to compute the new version of {name!r}, and another query has "
                "it: delete that query, or start the view over with reset=True (--reset)"
            )
        for source in view.source_views:
            other = await context.registry.source_view(source, self._new_name)
            if other is not None and other.has_outdated_reader:
                await context.registry.delete(self._new_name)
        for _ in range(2):
            try:
                registered = await context.registry.register(
                    self._new_name,
                    lines,
                    fingerprint(lines),
                    sink=None,
                    history_seconds=context.options.history_retention_seconds,
                )
            except QueryChanged:
                # A rebuild to another definition did not end.
                await context.registry.delete(self._new_name)
            else:
                await self._subscribe(old)
                return registered
        raise LeaseLost(f"another process computes another version of the view {name!r}")

    async def _subscribe(self, old: StoredView) -> None:
        """Let the new version begin where the old one did."""
        log = self._context.log
        async with log.database.connection() as conn:
            rows = await (await conn.execute(_sql["starts"], {"old": old.name})).fetchall()
        view = self._new_stream.view
        assert view is not None  # noqa: S101 - only views are rebuilt
        # Other views are read from their first change.
        queues = {queue for name in view.queue_names for queue in view.inputs[name].sources}
        for name, start, has_dropped_events in rows:
            if name in queues:
                await log.consumer_groups.subscribe(
                    await log.catalog.refresh(name), self._new_name, start or "beginning", query_id=self._new_name
                )
                if has_dropped_events:
                    _logger.warning(
                        "retention has dropped events of the queue %r: the new version of the view %r lacks them",
                        name,
                        self._name,
                    )

    def _run_pass(self, registered: RegisteredQuery) -> None:
        """Read what is there."""
        context = self._context
        running = context.start_pass(self._new_stream, self._new_name)
        while not running.wait(_POLL_SECONDS):
            context.on_progress(running.status)
            if context.stopping.is_set():
                running.ask_to_stop()
        commands = self._run(query_commands.read_commands(context.log.database, registered.id, registered.at))
        if commands is not None and commands.stopped:
            context.stopping.set()

    async def _check_columns(self, new: StoredView) -> None:
        types: dict[str, str | None] = {column.name: column.spark_type for column in new.visible}
        async with self._context.log.database.connection() as conn:
            await check_readers(conn, self._name, types, keeps_changes=True)

    def _take_over(self, registered: RegisteredQuery) -> None:
        """Fence the old driver off, read what is left, and switch."""
        context, registry = self._context, self._context.registry
        lease = context.options.lease_seconds
        old = self._run(find_view(context.log, self._name))
        if old is None:
            return
        fence = self._run(registry.seize_lease(old.id, old.fingerprint, driver_name(), lease))
        if fence is None:
            return
        keeper = context.event_loop.submit(renew_lease(registry, old.id, fence, lease))
        try:
            self._run_pass(registered)
            if not context.stopping.is_set():
                self._run(self._switch(old, fence, registered))
        finally:
            keeper.cancel()
            # Without a switch, a standby of the old version continues.
            self._run(registry.release_lease(old.id, fence, stopped=False))

    async def _switch(self, old: StoredView, old_fence: int, registered: RegisteredQuery) -> None:
        context, definition = self._context, self._definition
        lease = context.options.lease_seconds
        new_fence = await context.registry.acquire_lease(registered, driver_name(), lease)
        if new_fence is None:
            raise LeaseLost(f"another process computes the new version of the view {self._name!r}")
        try:
            async with keep_lease(context.registry, registered.id, new_fence, lease):
                new = await find_view(context.log, self._new_name)
                if new is None:
                    raise QueryReplaced(f"the new version of the view {self._name!r} was deleted")
                if definition.sink is not None and await context.log.catalog.find(definition.sink) is None:
                    await context.log.configure(definition.sink, partitioning="hash", partitions=8, only_new=False)
                changes = None if definition.sink is None else await self._differences(old, new)
                await ViewSwitch(context.log, definition).switch(old, old_fence, new, new_fence, changes)
        finally:
            await context.registry.release_lease(registered.id, new_fence)
        _logger.info("the view %r has its new definition", self._name)

    async def _differences(self, old: StoredView, new: StoredView) -> ViewChanges:
        """The difference between the rows of both versions, of which no driver can commit more."""
        database, spark = self._context.log.database, self._context.spark
        if old.sink != self._definition.sink or not old.columns:
            rows = await read_rows(database, new)
            return await asyncio.to_thread(lambda: compare_rows(None, with_keys(spark, new, rows), None))
        is_same = have_equal_columns(old, new)
        before = await read_rows(database, old, new if is_same else None)
        after = await read_rows(database, new, old if is_same else None)
        has_same_shape = [(c.name, c.spark_type) for c in old.visible] == [(c.name, c.spark_type) for c in new.visible]
        visible = [column.name for column in new.visible] if has_same_shape else None
        return await asyncio.to_thread(
            lambda: compare_rows(with_keys(spark, old, before), with_keys(spark, new, after), visible)
        )
