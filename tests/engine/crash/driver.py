"""A driver with a fault: ``python -m tests.engine.crash.driver URL FAULT OPTIONS``. It prints its states.

The number of a fault is that of the commit, from 1, at which it happens.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from functools import wraps
from typing import Any
from unittest import mock

import pyarrow as pa
from msgspec import structs

from penstock.cli import main as command_line
from penstock.core.settings import Settings
from penstock.engine.cycle.commit import Committer
from penstock.engine.cycle.commit_steps import finish_cycle
from penstock.engine.foreground import run_until_stopped
from penstock.engine.query import Query
from penstock.engine.rebuild.view_switch import ViewSwitch
from penstock.engine.run_options import RunOptions
from penstock.engine.state.operator_state import OperatorState, StateConfig
from penstock.engine.worker import task_reports
from penstock.engine.worker.event_reader import EventReader
from penstock.engine.worker.spark_task import current_task, load_plan, worker_connection
from tests.engine.crash import orders, pairs


def _signal_all(number: signal.Signals) -> None:
    """Send a signal that kills or stops to this process and its JVM, and return once the process continues."""
    os.killpg(0, number)
    # Every thread blocks it, so it waits until this one takes it.
    signal.sigwait({signal.SIGCONT})


def after_commit(commits: int, number: signal.Signals) -> None:
    """Signal after PostgreSQL has committed and before the driver goes on."""
    real, made = Committer.commit, iter(range(1, 1_000_000))

    @wraps(real)
    async def commit(self: Committer, work: Any) -> Any:
        outcome = await real(self, work)
        if next(made) == commits:
            _signal_all(number)
        return outcome

    mock.patch.object(Committer, "commit", commit).start()


def before_commit(commits: int, number: signal.Signals) -> None:
    """Signal after the cycle was written and before COMMIT is sent."""
    real, made = finish_cycle, iter(range(1, 1_000_000))

    @wraps(real)
    async def finish(*arguments: Any, **more: Any) -> None:
        await real(*arguments, **more)
        if next(made) == commits:
            _signal_all(number)

    mock.patch("penstock.engine.cycle.commit.finish_cycle", finish).start()


def before_transaction(commits: int, number: signal.Signals) -> None:
    """Signal after Spark has computed the cycle and before its transaction begins."""
    real, made = Committer.commit, iter(range(1, 1_000_000))

    @wraps(real)
    async def commit(self: Committer, work: Any) -> Any:
        if next(made) == commits:
            _signal_all(number)
        return await real(self, work)

    mock.patch.object(Committer, "commit", commit).start()


def before_switch(number: signal.Signals) -> None:
    """Signal after the new version of a view has read all, and the old one is fenced off: before the first switch."""
    real, made = ViewSwitch.switch, iter(range(1_000_000))

    @wraps(real)
    async def switch(self: ViewSwitch, *arguments: Any) -> None:
        if next(made) == 0:
            _signal_all(number)
        await real(self, *arguments)

    mock.patch.object(ViewSwitch, "switch", switch).start()


def in_switch(number: signal.Signals) -> None:
    """Signal after changes were appended and the new version is shown, and before COMMIT is sent."""
    real = ViewSwitch.show_new_version

    @wraps(real)
    async def show(self: ViewSwitch, *arguments: Any) -> None:
        await real(self, *arguments)
        _signal_all(number)

    mock.patch.object(ViewSwitch, "show_new_version", show).start()


def after_switch(number: signal.Signals) -> None:
    """Signal after the new version has the name of the view, and before it has a driver."""
    real = ViewSwitch.switch

    @wraps(real)
    async def switch(self: ViewSwitch, *arguments: Any) -> None:
        await real(self, *arguments)
        _signal_all(number)

    mock.patch.object(ViewSwitch, "switch", switch).start()


def tasks_run_twice(notes: str, differs: bool) -> None:
    """Let two tasks of small cycles and two of large cycles fail after their reports, each recorded in a file."""

    class FailingReader(EventReader):
        def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from super().__call__(batches)
            current = current_task()
            if current is None:
                return
            size = "small" if load_plan(self.config, current.job).is_small else "large"
            for number in range(2):
                try:
                    note = os.open(f"{notes}/{size}-{number}", os.O_CREAT | os.O_EXCL)
                except FileExistsError:
                    continue
                os.close(note)
                if differs:
                    _change_report(self.config.conninfo)
                raise OSError("this task fails after it has reported")

    mock.patch("penstock.engine.cycle.query_setup.EventReader", FailingReader).start()


def _change_report(conninfo: str) -> None:
    """Change the report of the failed attempt to one event less."""
    conn = worker_connection(conninfo)
    newest = "SELECT ctid::text, report FROM penstock.reports ORDER BY fence DESC, cycle DESC LIMIT 1"
    for row, encoded in conn.execute(newest, binary=True).fetchall():
        report = task_reports.decode(encoded)
        first = report.partitions[0]
        report.partitions[0] = structs.replace(first, offsets_read=first.offsets_read - 1, events=first.events - 1)
        conn.execute("UPDATE penstock.reports SET report = %s WHERE ctid = %s::tid", (task_reports.encode(report), row))


def workers_killed(notes: str) -> None:
    """Kill four workers after they wrote the state of a view's operator, each recorded in a file."""

    class KillingState(StateConfig):
        def open(self, shards: Sequence[int]) -> OperatorState:
            state = super().open(shards)
            flush = state.flush

            def flush_and_die() -> None:
                flush()
                if current_task() is None:
                    return
                for number in range(4):
                    try:
                        note = os.open(f"{notes}/{number}", os.O_CREAT | os.O_EXCL)
                    except FileExistsError:
                        continue
                    os.close(note)
                    os.kill(os.getpid(), signal.SIGKILL)

            state.flush = flush_and_die  # type: ignore[method-assign]
            return state

    mock.patch("penstock.engine.cycle.query_setup.StateConfig", KillingState).start()


def prepare(fault: list[Any]) -> None:
    match fault:
        case ["killed after commit", int(commits)]:
            after_commit(commits, signal.SIGKILL)
        case ["killed before commit", int(commits)]:
            before_commit(commits, signal.SIGKILL)
        case ["killed before the switch"]:
            before_switch(signal.SIGKILL)
        case ["killed in the switch"]:
            in_switch(signal.SIGKILL)
        case ["killed after the switch"]:
            after_switch(signal.SIGKILL)
        case ["paused before the switch"]:
            before_switch(signal.SIGSTOP)
        case ["paused before its transaction", int(commits)]:
            before_transaction(commits, signal.SIGSTOP)
        case ["paused before commit", int(commits)]:
            before_commit(commits, signal.SIGSTOP)
        case ["tasks run twice", str(notes), bool(differs)]:
            tasks_run_twice(notes, differs)
        case ["workers killed after they wrote state", str(notes)]:
            workers_killed(notes)
        case []:
            pass
        case _:
            raise ValueError(fault)


def _print_states(query: Query) -> None:
    printed = ""
    while query.is_running:
        if query.status.state != printed:
            printed = query.status.state
            print(f"state: {printed}", flush=True)
        time.sleep(0.02)


def run_statements(url: str, file: str, options: dict[str, Any]) -> None:
    """Run all queries of a file with the command of users."""
    conf = [word for name, value in options["spark_conf"].items() for word in ("--conf", f"{name}={value}")]
    sys.argv[1:] = ["sql", file, "--database-url", url, "--master", options["master"], *conf]
    sys.argv += ["--interval", str(options["interval_seconds"])]
    sys.argv += ["--rebuild"] if options.get("rebuild") else []
    command_line()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
    url, fault, options = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    prepare(fault)
    if (file := options.pop("file", None)) is not None:
        run_statements(url, file, options)
        return
    pipeline = {"orders": orders, "pairs": pairs}[options.pop("pipeline", "orders")]
    query = Query(pipeline.stream(), pipeline.QUERY, Settings(database_url=url), RunOptions.from_mapping(options))
    threading.Thread(target=_print_states, args=(query,), daemon=True).start()
    run_until_stopped(query)
    print("state: ended", flush=True)


if __name__ == "__main__":
    main()
