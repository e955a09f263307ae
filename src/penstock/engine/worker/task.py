"""In a Spark worker: which cycle its task is for, its connection to PostgreSQL, and what it tells the driver."""

from __future__ import annotations

import gc
import select
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus

from penstock.db.retry import LOST
from penstock.db.statements import Statements
from penstock.db.sync import connect
from penstock.engine import plan as plans
from penstock.engine.plan import CyclePlan
from penstock.engine.worker import reports
from penstock.engine.worker.reports import Report

if TYPE_CHECKING:
    from pyspark import TaskContext
    from pyspark.sql import SparkSession

    from penstock.engine.worker.read_config import Reading

_sql = Statements("penstock.engine.worker", "reports.sql")

#: The local property of a job of Spark's that says which cycle it is for.
_JOB = "penstock.job"


@dataclass(frozen=True)
class Job:
    """Which cycle a job of Spark's is for, and under which fencing number. Not part of a plan, which is used again."""

    fence: int
    cycle: int


def label_job(spark: SparkSession, job: Job | None) -> None:
    """Tell the tasks of what this thread runs next which cycle it is for; None: of none."""
    spark.sparkContext.setLocalProperty(_JOB, "" if job is None else f"{job.fence}/{job.cycle}")


def current_task() -> tuple[TaskContext, Job] | None:
    """In a worker: the task that runs, and the cycle that it is for; None, outside a cycle."""
    from pyspark import TaskContext

    context = TaskContext.get()
    said = None if context is None else context.getLocalProperty(_JOB)
    if context is None or not said:
        return None
    fence, _, cycle = said.partition("/")
    return context, Job(int(fence), int(cycle))


def send_report(reading: Reading, job: Job, stage: int, task: int, attempt: int, report: Report) -> None:
    """Tell the driver what there is to tell beside the data."""
    params = {
        "query": reading.query,
        "fence": job.fence,
        "cycle": job.cycle,
        "stage": stage,
        "task": task,
        "attempt": attempt,
        "report": reports.encode(report),
    }
    with asking():
        connection(reading.conninfo).execute(_sql["send"], params)


def report_stage(reading: Reading, stage: int, report: Report) -> None:
    """Tell the driver, at the end of a task, what became of events in a stage after the reader."""
    current = current_task()
    if current is not None:
        context, job = current
        send_report(reading, job, stage, context.partitionId(), context.taskAttemptId(), report)
    elif reading.failed is not None:
        reading.failed.add(report.failures)


def load_plan(reading: Reading, job: Job) -> CyclePlan:
    """The plan of a cycle, out of the ledger."""
    params = {"query": reading.query, "fence": job.fence, "cycle": job.cycle}
    with asking():
        row = connection(reading.conninfo).execute(_sql["plan"], params, binary=True).fetchone()
    if row is None:
        raise RuntimeError(
            f"cycle {job.cycle} of query {reading.query_name!r} is not in the ledger: another driver has it"
        )
    return plans.decode(row[0])


class DatabaseLost(Exception):
    """PostgreSQL was away while a task ran: no event is to blame for that."""


@contextmanager
def asking() -> Iterator[None]:
    """Around what a task asks of PostgreSQL; the driver knows the error by its name."""
    try:
        yield
    except LOST as error:
        raise DatabaseLost(str(error).strip()) from error


_connections: dict[str, psycopg.Connection[Any]] = {}


def connection(conninfo: str) -> psycopg.Connection[Any]:
    """This worker's connection; Spark uses a worker again for the tasks that follow."""
    conn = _connections.get(conninfo)
    if conn is not None and _is_cut(conn):
        conn.close()
    if conn is None or conn.closed:
        conn = connect(conninfo, "worker")
        # What a worker writes is only for the cycle that it is in.
        conn.execute("SET synchronous_commit = off")
        if not _connections:
            # Spark's daemon collects garbage after each task, through all that is there: 28 ms, with what was loaded.
            gc.collect()
            gc.freeze()
        _connections[conninfo] = conn
    return conn


def _is_cut(conn: psycopg.Connection[Any]) -> bool:
    """Whether the server has ended it while the worker waited: it does not speak unasked for any other reason."""
    if conn.closed or conn.broken:
        return True
    if conn.info.transaction_status != TransactionStatus.IDLE:
        return False
    socket = select.poll()
    socket.register(conn.fileno(), select.POLLIN)
    return bool(socket.poll(0))
