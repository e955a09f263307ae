"""The demonstration: starts everything, plays the script, and adds it all up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.demo.board import Board, rows_of
from penstock.cli.demo.checks import Auditor, Check
from penstock.cli.demo.expected import Books
from penstock.cli.demo.partner import Partner, partner
from penstock.cli.demo.processes import Process
from penstock.cli.demo.producers import Producers
from penstock.cli.demo.queries import QUERIES, QUEUES, Look, look, there_already
from penstock.cli.demo.script import Phase, phases
from penstock.cli.demo.traffic import makers
from penstock.core.errors import Conflict, GroupBusy
from penstock.core.settings import LIBPQ_VARIABLES, Settings
from penstock.stream.rules import above, change, rule

if TYPE_CHECKING:
    from penstock.cli.demo.screen import Act, Screen
    from penstock.db.pool import Connection
    from penstock.log.log import Log

_LOOK_SECONDS = 1.0
#: A machine that is busy with other things takes its time.
_START_SECONDS = 180.0
_CATCH_UP_SECONDS = 180.0
#: So long after the first result the others are no longer waited for.
_PATIENCE_SECONDS = 30.0
#: Calls that still wait at the gate after so long are counted as waiting.
_DRAIN_SECONDS = 20.0
#: A query is held for so long by a driver that is gone, and a little more.
_LEASE_SECONDS = 15.0
#: As many calls may wait for the partner before producers are told to.
_MOST_CALLS = 300
#: How Spark's JVM is to compile: quickly, since it runs for minutes only. What that saves was not measured.
_JAVA = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

RULES = (
    rule("surge", on="sites.5s", value="views", when=change(2.5, over=3)),
    rule("hot", on="sensors.5s", value="avg", when=above(80, clear=70)),
)


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What was asked for on the command line."""

    streams: Path
    duration: float | None
    rate: float
    seed: int
    headless: bool
    port: int


@dataclass(slots=True)
class DemoResult:
    """How it ended."""

    checks: Sequence[Check] = ()
    #: Windows that are not what was sent, in words.
    wrong: Sequence[str] = ()
    #: What somebody else has pushed meanwhile, by queue.
    foreign: Mapping[str, int] = field(default_factory=dict)
    events: int = 0
    #: Answers that told producers to wait.
    refused: int = 0
    alerts: int = 0
    #: From the start of the command to the first result that could be seen; None, if there was none.
    first_result_seconds: float | None = None

    @property
    def succeeded(self) -> bool:
        """Whether everything added up."""
        return bool(self.checks) and all(check.holds for check in self.checks)


class Company:
    """A small web analytics company with everything that it needs, in processes of their own."""

    def __init__(
        self, log: Log, settings: Settings, directory: Path, wishes: DemoOptions, screen: Screen, began: float
    ) -> None:
        self.outcome = DemoResult()
        self.server_url = ""
        self.console_url: str | None = None
        self._log = log
        self._settings = settings
        self._directory = directory
        self._wishes = wishes
        self._screen = screen
        self._began = began
        self._books = Books()
        self._auditor = Auditor(self._books)
        self._stopping = asyncio.Event()
        self._processes: list[Process] = []
        self._has_begun = False
        self._producing: list[asyncio.Task[None]] = []

    def stop(self) -> None:
        """End the traffic, and add it all up."""
        self._stopping.set()

    async def play(self, board: Board, welcome: Callable[[], None]) -> DemoResult:
        """Play the whole of it; ``welcome`` is called when there is something to see."""
        async with partner() as called, self._connection() as conn, self._all_ended():
            with self._screen.act("Starting everything", "as in production, each in a process of its own") as act:
                await self._prepare(conn)
                await self._start(act, called)
            async with self._traffic() as producers:
                with self._screen.act("Spark warms up", "while events come in already") as act:
                    await self._first_results(conn, act)
                if not self._stopping.is_set():
                    welcome()
                    with board:
                        await self._day(conn, board, producers, called)
            if self.outcome.first_result_seconds is not None:
                with self._screen.act("Adding it up", "every window, against what was sent") as act:
                    await self._add_up(conn, act, called)
        return self.outcome

    async def forget(self) -> None:
        """Delete what was made, where the database is somebody's."""
        from penstock.sinks.alerts import RuleStore

        if not self._has_begun:
            return
        for made in RULES:
            await RuleStore(self._log).delete(made.name)
        for query in QUERIES:
            await self._forget_query(query)
        for queue in QUEUES:
            await self._log.delete_queue(queue)

    async def _forget_query(self, name: str) -> None:
        from penstock.engine.registry import Registry

        until = time.monotonic() + _LEASE_SECONDS
        while True:
            try:
                await Registry(self._log).delete(name)
                return
            except GroupBusy:
                # A driver that had to be killed has not let go of it.
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.2)

    # Starting

    async def _prepare(self, conn: Connection) -> None:
        from penstock.sinks.alerts import RuleStore

        taken = await there_already(conn)
        if taken:
            raise Conflict(
                f"the database has {', '.join(taken)} already, which may be somebody's: name another database, or none "
                "for one of the demonstration's own"
            )
        self._has_begun = True
        for queue in ("clicks", "orders", "readings"):
            await self._log.configure(queue, partitioning="hash", partitions=2)
        await self._log.configure("calls", {"max_depth_events": _MOST_CALLS}, partitioning="key")
        await self._log.configure("calls.allowed", partitioning="key")
        for made in RULES:
            await RuleStore(self._log).save(made)

    async def _start(self, act: Act, called: Partner) -> None:
        spark = ["--interval", "1", "--report", "0", "--conf", _JAVA]
        # It takes longest, so it goes first.
        await self._run("run", str(self._wishes.streams), *spark, PARTNER_URL=called.url)
        server = await self._run("serve", "--port", "0", "--request-log", "errors")
        console = None
        if not self._wishes.headless and find_spec("nicegui") is not None:
            console = await self._run("console", "--port", str(self._wishes.port))
        self.server_url = await server.ready(_START_SECONDS)
        self._screen.say(act, f"The server listens on {self.server_url}.")
        if console is not None:
            self.console_url = await console.ready(_START_SECONDS)
            self._screen.say(act, f"The console is at {self.console_url}.")
        act.result = f"{len(self._processes)} processes after {self._passed():.0f} s."

    async def _run(self, name: str, *arguments: str, **environ: str) -> Process:
        process = await Process.start(name, arguments, self._directory, {**self._environment(), **environ})
        self._processes.append(process)
        return process

    def _environment(self) -> dict[str, str]:
        """Which database is meant. Its address may hold a password, so it is no option that everybody can see."""
        foreign = ("PENSTOCK_URL", "PENSTOCK_DATABASE_URL", "PENSTOCK_DATA_DIR", "DATABASE_URL", *LIBPQ_VARIABLES)
        kept = {name: value for name, value in os.environ.items() if name not in foreign}
        if self._settings.database_url is None:
            return {**kept, "PENSTOCK_DATA_DIR": str(self._settings.data_dir)}
        return {**kept, "PENSTOCK_DATABASE_URL": self._settings.database_url}

    async def _first_results(self, conn: Connection, act: Act) -> None:
        """Wait until each query has come to something, but not long after the first has; how long that took is told."""
        while not self._stopping.is_set():
            self._check()
            found = await look(conn)
            done = [query.name for query in found.queries.values() if query.cycles]
            if done and self.outcome.first_result_seconds is None:
                self.outcome.first_result_seconds = self._passed()
                self._screen.say(act, f"The first numbers move after {self._passed():.0f} s: those of {done[0]}.")
            self._screen.progress(act, "queries", len(done), len(QUERIES))
            if len(done) == len(QUERIES):
                act.result = f"All of them have results after {self._passed():.0f} s."
                return
            first = self.outcome.first_result_seconds
            if first is not None and self._passed() - first > _PATIENCE_SECONDS:
                act.result = f"{len(done)} of them have results after {self._passed():.0f} s, the others follow."
                return
            await self._pause(0.2)

    # Playing

    @asynccontextmanager
    async def _traffic(self) -> AsyncIterator[Producers]:
        from penstock.client.connect import transport_for

        # Those who produce want to know when they have to wait, and do so themselves.
        settings = Settings.from_env({}, database_url=None, url=self.server_url)
        transport = transport_for(settings, wait_for_room=False)
        await transport.open()
        producers = Producers(transport, self._books, self._wishes.rate)
        self._producing = [asyncio.create_task(producers.run(maker)) for maker in makers(self._wishes.seed)]
        try:
            yield producers
        finally:
            producers.stop()
            await asyncio.wait(self._producing)
            await transport.close()
        for task in self._producing:
            task.result()

    async def _day(self, conn: Connection, board: Board, producers: Producers, called: Partner) -> None:
        until = None if self._wishes.duration is None else time.monotonic() + self._wishes.duration
        script = phases(self._wishes.duration)
        while not self._stopping.is_set():
            for phase in script:
                producers.phase = phase
                board.begin(phase)
                await self._phase(conn, board, phase, called, until)
                if self._stopping.is_set() or (until is not None and time.monotonic() >= until):
                    return

    async def _phase(self, conn: Connection, board: Board, phase: Phase, called: Partner, until: float | None) -> None:
        ends = time.monotonic() + phase.seconds
        ends = ends if until is None else min(ends, until)
        sent, at = self._sent(), time.monotonic()
        while (left := ends - time.monotonic()) > 0 and not self._stopping.is_set():
            await self._pause(min(_LOOK_SECONDS, left))
            self._check()
            found = await look(conn)
            await self._auditor.look(conn)
            before, sent = sent, self._sent()
            since, at = at, time.monotonic()
            board.show(rows_of(found, self._books, self._auditor, called, (sent - before) / max(at - since, 0.001)))

    def _check(self) -> None:
        """Raise if something that has to run does not."""
        for process in self._processes:
            process.check()
        for task in self._producing:
            if task.done():
                task.result()

    # Adding up

    async def _add_up(self, conn: Connection, act: Act, called: Partner) -> None:
        found = await self._caught_up(conn, act, called)
        foreign = {queue: found.appended[queue] - sent.events for queue, sent in self._books.sent.items()}
        foreign = {queue: count for queue, count in foreign.items() if count}
        compared = await self._auditor.finish(conn, foreign)
        self.outcome.checks = [*self._events(found, foreign), compared, *self._calls(found, foreign, called)]
        self.outcome.wrong, self.outcome.foreign = self._auditor.wrong(foreign), foreign
        self.outcome.events = self._sent()
        self.outcome.refused = sum(sent.refused for sent in self._books.sent.values())
        self.outcome.alerts = found.appended.get("alerts", 0)
        act.result = f"{self._auditor.compared:,} windows of {len(QUERIES) - 1} queries were compared."

    async def _caught_up(self, conn: Connection, act: Act, called: Partner) -> Look:
        """Wait until the queries have read everything, and the partner has taken what was let through."""
        sent = {queue: each.events for queue, each in self._books.sent.items()}
        until = time.monotonic() + _CATCH_UP_SECONDS
        drained = time.monotonic() + _DRAIN_SECONDS
        while True:
            found = await look(conn)
            self._screen.progress(act, "read", max(sum(sent.values()) - found.behind, 0), sum(sent.values()))
            waits = found.waiting and time.monotonic() < drained
            if (not found.behind and not waits and called.calls >= found.allowed) or time.monotonic() > until:
                return found
            self._check()
            await asyncio.sleep(0.2)

    def _events(self, found: Look, foreign: Mapping[str, int]) -> list[Check]:
        sent = self._books.sent
        by_queue = {"clicks": ("sites", "online", "pages"), "orders": ("revenue",), "readings": ("sensors",)}
        checks = []
        for queue, names in by_queue.items():
            expected = sent[queue].events + foreign.get(queue, 0)
            for name in names:
                checks.append(Check(f"{queue} read by {name}", f"{expected:,}", f"{found.numbers(name).events:,}"))
        for queue, name in (("orders", "revenue"), ("readings", "sensors")):
            if queue not in foreign:
                broken, dead = sent[queue].broken, found.numbers(name).dead
                checks.append(Check(f"dead letters of {name}", f"{broken:,}", f"{dead:,}"))
        if "orders" not in foreign:
            total = sum(amount for _, amount in found.revenue)
            checks.append(Check("revenue, to the penny", f"{sent['orders'].money:,.2f}", f"{total:,.2f}"))
        return checks

    def _calls(self, found: Look, foreign: Mapping[str, int], called: Partner) -> list[Check]:
        expected = self._books.sent["calls"].events + foreign.get("calls", 0)
        return [
            Check("calls let through or waiting", f"{expected:,}", f"{found.allowed + found.waiting:,}"),
            Check("calls that the partner got, once", f"{found.allowed:,}", f"{called.calls:,}"),
            Check("calls out of order", "0", f"{called.out_of_order:,}"),
            Check("calls sooner than the partner allows", "0", f"{called.too_soon:,}"),
        ]

    # Inside

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        conn = await self._log.database.connect()
        try:
            yield conn
        finally:
            await conn.close()

    @asynccontextmanager
    async def _all_ended(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            # Together, and to the end, also when we are told to hurry.
            ending = asyncio.gather(*(process.stop() for process in self._processes))
            while not ending.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(ending)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _sent(self) -> int:
        return sum(sent.events for sent in self._books.sent.values())

    def _passed(self) -> float:
        return time.monotonic() - self._began
