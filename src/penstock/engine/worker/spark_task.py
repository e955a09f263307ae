"""The environment of a Spark task: its cycle, its connection to PostgreSQL, and its reports to the driver."""

from __future__ import annotations

import gc
import select
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from psycopg.pq import TransactionStatus
from pyspark import TaskContext
from pyspark.sql import SparkSession

from penstock.db.retry import CONNECTION_ERRORS
from penstock.db.statements import Statements
from penstock.db.sync_connection import connect
from penstock.engine import cycle_plan as plans
from penstock.engine.cycle_plan import CyclePlan
from penstock.engine.worker import task_reports
from penstock.engine.worker.read_config import ReadConfig
from penstock.engine.worker.task_reports import TaskReport

_sql = Statements("penstock.engine.worker", "task_reports.sql")

#: The local property of a Spark job that names its cycle.
_JOB_PROPERTY = "penstock.job"


@dataclass(frozen=True)
class CycleJob:
    """The cycle that a Spark job computes. Not part of a Spark plan, which is reused for many cycles."""

    fence: int
    cycle: int
    #: A unique text for each run of the job. State that its tasks store carries it until the commit.
    token: str = ""
    #: The time of the cycle's plan.
    time_us: int = 0


class CycleTask(NamedTuple):
    context: TaskContext
    job: CycleJob


def set_cycle_job(spark: SparkSession, job: CycleJob | None, description: str = "") -> None:
    """Set the cycle of the jobs that this thread starts next; None for jobs outside a cycle.

    Spark's web UI shows the description.
    """
    text = "" if job is None else f"{job.fence}/{job.cycle}/{job.token}/{job.time_us}"
    spark.sparkContext.setLocalProperty(_JOB_PROPERTY, text)
    spark.sparkContext.setJobDescription(description)


def current_task() -> CycleTask | None:
    """The task that runs in this worker; None outside a cycle."""

    context = TaskContext.get()
    job = None if context is None else context.getLocalProperty(_JOB_PROPERTY)
    if context is None or not job:
        return None
    fence, cycle, token, time_us = job.split("/")
    return CycleTask(context, CycleJob(int(fence), int(cycle), token, int(time_us)))


def send_report(config: ReadConfig, job: CycleJob, stage: int, task: int, attempt: int, report: TaskReport) -> None:
    params = {
        "query": config.query_id,
        "fence": job.fence,
        "cycle": job.cycle,
        "stage": stage,
        "task": task,
        "attempt": attempt,
        "report": task_reports.encode(report),
    }
    with translate_database_errors():
        worker_connection(config.conninfo).execute(_sql["send_report"], params)


def send_stage_report(config: ReadConfig, stage: int, report: TaskReport) -> None:
    """Report at the end of a task in a stage after the reader."""
    current = current_task()
    if current is not None:
        context, job = current
        send_report(config, job, stage, context.partitionId(), context.taskAttemptId(), report)
    elif config.failed_events is not None:
        config.failed_events.add(report.failures)


def load_plan(config: ReadConfig, job: CycleJob) -> CyclePlan:
    params = {"query": config.query_id, "fence": job.fence, "cycle": job.cycle}
    with translate_database_errors():
        row = worker_connection(config.conninfo).execute(_sql["load_plan"], params, binary=True).fetchone()
    if row is None:
        raise RuntimeError(
            f"cycle {job.cycle} of query {config.query_name!r} is not in the ledger: another driver took over the query"
        )
    (plan,) = row
    return plans.decode(plan)


class DatabaseLost(Exception):
    """A task lost its connection to PostgreSQL. No event is the cause."""


@contextmanager
def translate_database_errors() -> Iterator[None]:
    """Raise DatabaseLost for connection errors. Spark passes on only the name of an exception's class."""
    try:
        yield
    except CONNECTION_ERRORS as error:
        raise DatabaseLost(str(error).strip()) from error


_connections: dict[str, psycopg.Connection[Any]] = {}


def worker_connection(conninfo: str) -> psycopg.Connection[Any]:
    """The connection of this worker process, which Spark reuses for many tasks."""
    conn = _connections.get(conninfo)
    if conn is not None and _is_closed_by_server(conn):
        conn.close()
    if conn is None or conn.closed:
        conn = connect(conninfo, "worker")
        # Reports are only needed until the commit of their cycle.
        conn.execute("SET synchronous_commit = off")
        if not _connections:
            # Spark's daemon collects garbage after each task. Without this, it takes 28 ms for the loaded modules.
            gc.collect()
            gc.freeze()
        _connections[conninfo] = conn
    return conn


def _is_closed_by_server(conn: psycopg.Connection[Any]) -> bool:
    """True if the server closed the idle connection: it sends data to an idle client for no other reason."""
    if conn.closed or conn.broken:
        return True
    if conn.info.transaction_status != TransactionStatus.IDLE:
        return False
    socket = select.poll()
    socket.register(conn.fileno(), select.POLLIN)
    return bool(socket.poll(0))
