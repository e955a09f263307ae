"""A driver to be killed: ``python -m tests.engine.crash.driver URL FAULT OPTIONS``. It prints each state it comes to.

A fault is named after what happens; its number says at which commit, counted from one.
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
from penstock.engine.foreground import run_until_stopped
from penstock.engine.query import Query
from penstock.engine.run_options import RunOptions
from penstock.engine.state.operator_state import OperatorState, StateConfig
from penstock.engine.worker import task_reports
from penstock.engine.worker.event_reader import EventReader
from penstock.engine.worker.spark_task import current_task, load_plan, worker_connection
from tests.engine.crash import orders, pairs


def _hit_all(number: signal.Signals) -> None:
    """Hit this process and its JVM, and do not go on before it has worked."""
    os.killpg(0, number)
    time.sleep(0.5)


def after_commit(commits: int, number: signal.Signals) -> None:
    """PostgreSQL has committed; Spark has not been told."""
    real, made = Committer.commit, iter(range(1, 1_000_000))

    @wraps(real)
    async def commit(self: Committer, work: Any) -> Any:
        outcome = await real(self, work)
        if next(made) == commits:
            _hit_all(number)
        return outcome

    mock.patch.object(Committer, "commit", commit).start()


def before_commit(commits: int, number: signal.Signals) -> None:
    """Everything is written and locked; the COMMIT has not been sent."""
    real, made = Committer._finish_cycle, iter(range(1, 1_000_000))

    @wraps(real)
    async def finish(self: Committer, *arguments: Any) -> None:
        await real(self, *arguments)
        if next(made) == commits:
            _hit_all(number)

    mock.patch.object(Committer, "_finish_cycle", finish).start()


def before_transaction(commits: int, number: signal.Signals) -> None:
    """Spark has computed the cycle; nothing of it is in PostgreSQL."""
    real, made = Committer.commit, iter(range(1, 1_000_000))

    @wraps(real)
    async def commit(self: Committer, work: Any) -> Any:
        if next(made) == commits:
            _hit_all(number)
        return await real(self, work)

    mock.patch.object(Committer, "commit", commit).start()


def tasks_run_twice(notes: str, differs: bool) -> None:
    """Tasks fail once they have read and reported all: two of small cycles and two of large, each noted in a file."""

    class ClumsyReader(EventReader):
        def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from super().__call__(batches)
            current = current_task()
            if current is None:
                return
            size = "small" if load_plan(self.config, current.job).is_small else "large"
            for place in range(2):
                try:
                    note = os.open(f"{notes}/{size}-{place}", os.O_CREAT | os.O_EXCL)
                except FileExistsError:
                    continue
                os.close(note)
                if differs:
                    _say_something_else(self.config.conninfo)
                raise OSError("this task fails after it has reported")

    mock.patch("penstock.engine.cycle.query_setup.EventReader", ClumsyReader).start()


def _say_something_else(conninfo: str) -> None:
    """As if the failed attempt had found one event less."""
    conn = worker_connection(conninfo)
    newest = "SELECT ctid::text, report FROM penstock.reports ORDER BY fence DESC, cycle DESC LIMIT 1"
    for row, said in conn.execute(newest, binary=True).fetchall():
        report = task_reports.decode(said)
        first = report.partitions[0]
        report.partitions[0] = structs.replace(first, offsets_read=first.offsets_read - 1, events=first.events - 1)
        conn.execute("UPDATE penstock.reports SET report = %s WHERE ctid = %s::tid", (task_reports.encode(report), row))


def workers_killed(notes: str) -> None:
    """Four workers are killed after they wrote the state of a view's operator, each noted in a file."""

    class DeadlyState(StateConfig):
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

    mock.patch("penstock.engine.cycle.query_setup.StateConfig", DeadlyState).start()


def prepare(fault: list[Any]) -> None:
    match fault:
        case ["killed after commit", int(commits)]:
            after_commit(commits, signal.SIGKILL)
        case ["killed before commit", int(commits)]:
            before_commit(commits, signal.SIGKILL)
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


def _tell_states(query: Query) -> None:
    said = ""
    while query.is_running:
        if query.status.state != said:
            said = query.status.state
            print(f"state: {said}", flush=True)
        time.sleep(0.02)


def run_statements(url: str, file: str, options: dict[str, Any]) -> None:
    """All queries of a file, by the command that people use."""
    conf = [word for name, value in options["spark_conf"].items() for word in ("--conf", f"{name}={value}")]
    sys.argv[1:] = ["sql", file, "--database-url", url, "--master", options["master"], *conf]
    sys.argv += ["--interval", str(options["interval_seconds"])]
    command_line()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    url, fault, options = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    prepare(fault)
    if (file := options.pop("file", None)) is not None:
        run_statements(url, file, options)
        return
    pipeline = {"orders": orders, "pairs": pairs}[options.pop("pipeline", "orders")]
    query = Query(pipeline.stream(), pipeline.QUERY, Settings(database_url=url), RunOptions.from_mapping(options))
    threading.Thread(target=_tell_states, args=(query,), daemon=True).start()
    run_until_stopped(query)
    print("state: ended", flush=True)


if __name__ == "__main__":
    main()
