"""``penstock demo``: starts all processes, pushes simulated traffic through them, and verifies the results."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
import webbrowser
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import penstock
from penstock.cli.demo.demo_output import Check, Step, check_count, checks_document, print_checks, step
from penstock.cli.demo.expected import WINDOWED_QUERIES, ExpectedResults
from penstock.cli.demo.partner import Partner, run_partner
from penstock.cli.demo.processes import Process
from penstock.cli.demo.snapshot import QUERIES, QUEUES, Snapshot, existing_names, read_snapshot
from penstock.cli.demo.traffic import WARM_UP, EventGenerator, event_generators, phases
from penstock.cli.output import Output
from penstock.client.connect import transport_for
from penstock.client.transport import Transport
from penstock.core.errors import Conflict, GroupBusy, QueueFull
from penstock.core.formatting import counted, number
from penstock.core.settings import Settings, child_environment
from penstock.db.pool import Connection, Database
from penstock.engine.alerts.rule_store import RuleStore
from penstock.engine.query_registry import Registry
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from penstock.stream.rules import above, change, rule

_CATCH_UP_SECONDS = 180.0
#: Calls that still wait at the gate after this time are counted as waiting.
_DRAIN_SECONDS = 20.0
#: The lease of a killed driver on its query ends within this time.
_LEASE_SECONDS = 15.0
#: When more calls than this wait for the partner, producers get 429.
_MAX_WAITING_CALLS = 300
_TICK_SECONDS = 0.1
#: The JVM runs for minutes only, so that it should compile quickly.
_JAVA_OPTIONS = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_RULES = (
    rule("surge", on="sites.5s", value="views", when=change(2.5, over=3)),
    rule("hot", on="sensors.5s", value="avg", when=above(80, clear=70)),
)


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the command, and the file of streams to run."""

    streams: Path
    duration: float | None
    rate: float
    seed: int
    headless: bool
    port: int


@dataclass(slots=True)
class DemoResult:
    """The result of the demo, as printed with --json."""

    checks: Sequence[Check] = ()
    #: Windows with another result than expected.
    wrong: Sequence[str] = ()
    #: Events that others have pushed meanwhile, by queue.
    foreign: Mapping[str, int] = field(default_factory=dict)
    events: int = 0
    #: Pushes refused with 429.
    refused: int = 0
    alerts: int = 0
    #: Seconds from the start of the command to the first result; None if there was none.
    first_result_seconds: float | None = None

    @property
    def succeeded(self) -> bool:
        return bool(self.checks) and all(check.holds for check in self.checks)


async def run_demo(out: Output, options: DemoOptions, *, database_url: str | None, keep: bool) -> bool | None:
    """Run the demo and print its result; return whether all checks hold, or None if it was stopped before."""
    started = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    settings = Settings.from_env(database_url=database_url, url=None, data_dir=directory)
    log = Log(Database(settings))
    try:
        with step(out, "PostgreSQL", "your own, or the one that comes with the package") as current:
            await log.open()
            current.result = f"It runs after {time.monotonic() - started:.1f} s."
        try:
            demo = _Demo(out, log, settings, directory, options, started)
            try:
                with demo.stopped_by_ctrl_c():
                    result = await demo.run()
            finally:
                if database_url is not None and not keep:
                    await demo.delete_created()
        finally:
            await log.close()
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
    _print_result(out, result, directory if keep and database_url is None else None)
    return None if result.first_result_seconds is None else result.succeeded


def find_streams() -> Path:
    """Return the file of streams that the demo runs. A wheel has the example in this folder."""
    package = Path(penstock.__file__).parent
    paths = (package / "cli/demo/streams.py", package.parents[1] / "examples/analytics/streams.py")
    return next(path for path in paths if path.is_file())


def _print_result(out: Output, result: DemoResult, kept: Path | None) -> None:
    if out.json:
        document = {**asdict(result), "checks": checks_document(result.checks), "succeeded": result.succeeded}
        out.document({**document, "data_dir": None if kept is None else str(kept)})
        return
    if not result.checks:
        out.note("The demo was stopped before the first result.")
        return
    print_checks(out, result.checks)
    for queue, count in result.foreign.items():
        out.note(f"Others have pushed {counted(count, 'event')} to {queue}: its results were not checked.")
    for message in result.wrong[:10]:
        out.error(message)
    if result.succeeded:
        out.note(
            f"{counted(result.events, 'event')}, {counted(result.alerts, 'alert')}, "
            f"{counted(result.refused, 'push', 'pushes')} refused with 429: none lost, none twice."
        )
    if kept is not None:
        out.note(f"The database is in {kept} until you delete that directory. Inspect it:")
        out.note(f"  penstock query list --data-dir {kept}")
        out.note(f"  penstock console --data-dir {kept}")


class _Demo:
    def __init__(
        self, out: Output, log: Log, settings: Settings, directory: Path, options: DemoOptions, started: float
    ) -> None:
        self._out = out
        self._log = log
        self._settings = settings
        self._logs = directory / "demo-logs"
        self._options = options
        self._started = started
        self._result = DemoResult()
        self._expected = ExpectedResults()
        self._phase = WARM_UP
        #: Ends the traffic. The results are verified then.
        self._stopping = asyncio.Event()
        self._processes: list[Process] = []
        self._producers: list[asyncio.Task[None]] = []
        self._has_created = False

    @contextmanager
    def stopped_by_ctrl_c(self) -> Iterator[None]:
        """Let the first Ctrl-C end the traffic. The second one interrupts the demo."""
        loop = asyncio.get_running_loop()

        def stop() -> None:
            loop.remove_signal_handler(signal.SIGINT)
            self._stopping.set()

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def run(self) -> DemoResult:
        async with run_partner() as partner, await self._log.database.connect() as conn, self._stop_processes():
            with step(self._out, "Starting all processes", "as in production: Spark, the server, the console"):
                await self._create(conn)
                server_url, console_url = await self._start(partner)
            async with self._traffic(server_url):
                with step(self._out, "Spark warms up", "while events come in") as current:
                    await self._wait_for_results(conn, current)
                if not self._stopping.is_set():
                    self._print_urls(server_url, console_url)
                    await self._run_phases(conn, partner)
            if self._result.first_result_seconds is not None:
                with step(self._out, "Verifying the results", "every window, against the events pushed") as current:
                    await self._verify(conn, current, partner)
        return self._result

    async def delete_created(self) -> None:
        """Delete all that the demo has created in a database that the user has named."""
        if not self._has_created:
            return
        for demo_rule in _RULES:
            await RuleStore(self._log).delete(demo_rule.name)
        deadline = time.monotonic() + _LEASE_SECONDS
        for query in QUERIES:
            while True:
                try:
                    await Registry(self._log).delete(query)
                    break
                except GroupBusy:
                    # A killed driver still has its lease.
                    if time.monotonic() > deadline:
                        raise
                    await asyncio.sleep(0.2)
        for queue in QUEUES:
            await self._log.delete_queue(queue)

    # Start

    async def _create(self, conn: Connection) -> None:
        existing = await existing_names(conn)
        if existing:
            raise Conflict(
                f"the database has {', '.join(existing)} already, which the demo would change: name another database, "
                "or none to use an embedded one"
            )
        self._has_created = True
        for queue in ("clicks", "orders", "readings"):
            await self._log.configure(queue, partitioning="hash", partitions=2)
        await self._log.configure("calls", {"max_depth_events": _MAX_WAITING_CALLS}, partitioning="key")
        await self._log.configure("calls.allowed", partitioning="key")
        for demo_rule in _RULES:
            await RuleStore(self._log).save(demo_rule)

    async def _start(self, partner: Partner) -> tuple[str, str | None]:
        """Start the processes and return the URLs of the server and the console."""
        self._logs.mkdir()
        # Spark takes longest to start.
        spark = ("--interval", "1", "--report", "0", "--conf", _JAVA_OPTIONS)
        await self._start_process("run", str(self._options.streams), *spark, PARTNER_URL=partner.url)
        server = await self._start_process("serve", "--port", "0", "--request-log", "errors")
        if self._options.headless or find_spec("nicegui") is None:
            return await server.url(), None
        console = await self._start_process("console", "--port", str(self._options.port))
        return await server.url(), await console.url()

    async def _start_process(self, name: str, *arguments: str, **variables: str) -> Process:
        environ = child_environment(self._settings) | variables
        process = await Process.start(name, *arguments, directory=self._logs, environ=environ)
        self._processes.append(process)
        return process

    async def _wait_for_results(self, conn: Connection, current: Step) -> None:
        while not self._stopping.is_set():
            self._check_running()
            snapshot = await read_snapshot(conn)
            ready = [name for name, query in snapshot.queries.items() if query.cycles]
            seconds = time.monotonic() - self._started
            if ready and self._result.first_result_seconds is None:
                self._result.first_result_seconds = seconds
                self._out.note(f"   The first results after {seconds:.0f} s: those of {ready[0]}.")
            current.show(("queries with results", f"{len(ready)} of {len(QUERIES)}"))
            if len(ready) == len(QUERIES):
                current.result = f"All queries have results after {seconds:.0f} s."
                return
            await self._pause(0.2)

    def _print_urls(self, server_url: str, console_url: str | None) -> None:
        self._out.note("")
        if console_url is not None:
            self._out.note(f"  {console_url}  is the console: see the overview, the live board, gates and alerts")
            has_desktop = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
            if has_desktop and self._out.is_terminal:
                webbrowser.open(console_url)
        self._out.note(f"  {server_url}  is the server: /metrics, /v1/queries/online/live?current=true")
        self._out.note("  Ctrl-C ends the traffic and verifies the results.\n")

    # Traffic

    @asynccontextmanager
    async def _traffic(self, server_url: str) -> AsyncIterator[None]:
        """Push events inside the block, with one producer per queue."""
        # The producers count the pushes that a full queue refuses, and retry them.
        transport = transport_for(Settings.from_env({}, database_url=None, url=server_url), wait_for_room=False)
        await transport.open()
        generators = event_generators(self._options.seed)
        self._producers = [asyncio.create_task(self._produce(transport, generator)) for generator in generators]
        try:
            yield
        finally:
            self._stopping.set()
            await asyncio.wait(self._producers)
            await transport.close()
        self._check_running()

    async def _produce(self, transport: Transport, generator: EventGenerator) -> None:
        """Push the events that are due, one push at a time, so that they stay in order."""
        due, last = 0.0, time.monotonic()
        while not self._stopping.is_set():
            await self._pause(_TICK_SECONDS)
            now = time.monotonic()
            # After a wait, at most the events of one second are due.
            due += generator.per_second(self._options.rate, self._phase) * min(now - last, 1.0)
            last = now
            at_ms = time.time_ns() // 1_000_000
            events = [generator.next(at_ms, self._phase) for _ in range(int(due))]
            due %= 1
            if events:
                await self._push(transport, generator.queue, events)

    async def _push(self, transport: Transport, queue: str, events: list[dict[str, Any]]) -> None:
        while True:
            try:
                await transport.push([Batch(queue, events)])
            except QueueFull as full:
                self._result.refused += 1
                if self._stopping.is_set():
                    return
                await self._pause(full.retry_after)
            else:
                self._expected.add(queue, events)
                return

    async def _run_phases(self, conn: Connection, partner: Partner) -> None:
        duration = self._options.duration
        deadline = None if duration is None else time.monotonic() + duration
        while True:
            for phase in phases(duration):
                end = time.monotonic() + phase.seconds
                self._phase = phase
                with step(self._out, phase.title, phase.description) as current:
                    await self._run_phase(conn, current, partner, end if deadline is None else min(end, deadline))
                if self._stopping.is_set() or (deadline is not None and time.monotonic() >= deadline):
                    return

    async def _run_phase(self, conn: Connection, current: Step, partner: Partner, end: float) -> None:
        pushed, at = self._expected.pushed.total(), time.monotonic()
        while (left := end - time.monotonic()) > 0 and not self._stopping.is_set():
            await self._pause(min(1.0, left))
            self._check_running()
            snapshot = await read_snapshot(conn)
            await self._expected.compare(conn)
            previous, pushed = pushed, self._expected.pushed.total()
            since, at = at, time.monotonic()
            current.show(*self._rows(snapshot, partner, (pushed - previous) / max(at - since, 0.001)))

    def _rows(self, snapshot: Snapshot, partner: Partner, per_second: float) -> Iterator[tuple[str, str]]:
        freshness = "" if snapshot.freshness is None else f", results {snapshot.freshness:.1f} s old"
        yield "users online", _join(snapshot.online)
        yield "views in 2 minutes", _join(snapshot.pages)
        yield "revenue", _join((key, f"{amount:,.2f}") for key, amount in snapshot.revenue)
        yield "sensors", _join((key, f"{average}°") for key, average in snapshot.sensors)
        yield "alerts", _join(snapshot.firing)
        yield "dead letters", _join(snapshot.dead_letters)
        yield (
            "partner",
            f"{counted(partner.calls, 'call')}, {number(snapshot.waiting)} wait at the gate, "
            f"{counted(self._result.refused, 'push', 'pushes')} refused with 429",
        )
        yield (
            "traffic",
            f"{counted(self._expected.pushed.total(), 'event')}, {per_second:,.0f}/s, {number(snapshot.behind)} behind"
            f"{freshness}",
        )
        yield "windows compared", f"{number(self._expected.compared)}, {len(self._expected.wrong)} wrong"

    # Verification

    async def _verify(self, conn: Connection, current: Step, partner: Partner) -> None:
        snapshot = await self._wait_until_read(conn, current, partner)
        expected, result = self._expected, self._result
        result.foreign = {
            queue: snapshot.appended[queue] - count
            for queue, count in expected.pushed.items()
            if snapshot.appended[queue] != count
        }
        windows = await expected.finish(conn, result.foreign)
        checks = [check for queue, check in self._event_checks(snapshot, partner) if queue not in result.foreign]
        result.checks = [*checks, windows]
        result.wrong = [message for queue, message in expected.wrong if queue not in result.foreign]
        result.events = expected.pushed.total()
        result.alerts = snapshot.appended.get("alerts", 0)
        current.result = f"{expected.compared:,} windows of {len(WINDOWED_QUERIES)} queries were compared."

    async def _wait_until_read(self, conn: Connection, current: Step, partner: Partner) -> Snapshot:
        """Wait until the queries have read all events, and the partner has received what the gate let through."""
        deadline = time.monotonic() + _CATCH_UP_SECONDS
        drain_deadline = time.monotonic() + _DRAIN_SECONDS
        while True:
            snapshot = await read_snapshot(conn)
            current.show(("events to read", number(snapshot.behind)), ("calls at the gate", number(snapshot.waiting)))
            drains = snapshot.waiting and time.monotonic() < drain_deadline
            if not snapshot.behind and not drains and partner.calls >= snapshot.allowed:
                return snapshot
            if time.monotonic() > deadline:
                return snapshot
            self._check_running()
            await asyncio.sleep(0.2)

    def _event_checks(self, snapshot: Snapshot, partner: Partner) -> Iterator[tuple[str, Check]]:
        """Yield the checks of all queues, each with the name of its queue."""
        expected = self._expected
        for name, query in WINDOWED_QUERIES.items():
            counters = snapshot.query(name)
            yield (
                query.queue,
                check_count(f"{query.queue} read by {name}", expected.pushed[query.queue], counters.events),
            )
            yield query.queue, check_count(f"dead letters of {name}", expected.invalid[query.queue], counters.dead)
        revenue = sum(amount for _, amount in snapshot.revenue)
        yield "orders", Check("revenue, to the penny", f"{expected.revenue:,.2f}", f"{revenue:,.2f}")
        passed = snapshot.allowed + snapshot.waiting
        yield "calls", check_count("calls let through or waiting", expected.pushed["calls"], passed)
        yield "calls", check_count("calls that the partner got, once", snapshot.allowed, partner.calls)
        yield "calls", check_count("calls out of order", 0, partner.out_of_order)
        yield "calls", check_count("calls sooner than the partner allows", 0, partner.too_soon)

    # Processes

    def _check_running(self) -> None:
        """Raise if a process has ended or a producer has failed."""
        for process in self._processes:
            process.check()
        for producer in self._producers:
            if producer.done():
                producer.result()

    @asynccontextmanager
    async def _stop_processes(self) -> AsyncIterator[None]:
        """Stop all processes at the end of the block, even if the demo is cancelled meanwhile."""
        try:
            yield
        finally:
            stopped = asyncio.gather(*(process.stop() for process in self._processes))
            while not stopped.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(stopped)

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not longer than until the traffic ends."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


def _join(pairs: Any) -> str:
    return " · ".join(f"{key} {value}" for key, value in pairs) or "none"
