"""Health of the system: all processes run, and all groups reach the current end of their queues."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import psycopg

from chaos.http_client import NoResponse, Server
from chaos.system import System

#: The group whose events wait at a gate. It is healthy while it progresses.
GATED = "limiter"

GroupPartition = tuple[str, str, int]
_T = TypeVar("_T")


class NotHealthy(Exception):
    """The system is not healthy in time."""


def wait_until_healthy(system: System, seconds: float) -> float:
    """Wait until all groups have read the current events and all processes run; return the seconds."""
    began = time.monotonic()
    deadline = began + seconds
    marks = _until(lambda: _ends(system), deadline, "everybody has begun to read")
    _until(lambda: _ready(system), deadline, "the server is ready")
    _until(lambda: _have_reached(system, marks), deadline, lambda: f"groups have read on: {_behind(system, marks)}")
    _until(lambda: not system.missing(), deadline, lambda: f"everything runs: {', '.join(system.missing())} does not")
    return time.monotonic() - began


def wait_until_drained(system: System, seconds: float) -> float:
    """Wait until no group has a lag; return the seconds."""
    began = time.monotonic()
    _until(lambda: _is_drained(system), began + seconds, lambda: f"all is read: {_lags(system)}")
    return time.monotonic() - began


def _until(condition: Callable[[], _T], deadline: float, what: str | Callable[[], str]) -> _T:
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise NotHealthy(f"timeout while waiting until {what if isinstance(what, str) else what()}")
        time.sleep(0.2)


def _positions(system: System) -> dict[GroupPartition, tuple[int, int]]:
    with suppress(psycopg.Error), psycopg.connect(system.postgres.url, connect_timeout=3) as conn:
        conn.execute("SET statement_timeout = '5s'")
        rows = conn.execute(
            "SELECT queue, group_name, partition_id, next_offset, end_offset FROM penstock.partition_lag"
        ).fetchall()
        return {(queue, group, partition): (at, end) for queue, group, partition, at, end in rows}
    return {}


def _ends(system: System) -> dict[GroupPartition, tuple[int, int]]:
    found = _positions(system)
    return found if {(queue, group) for queue, group, _ in found} >= system.readers else {}


def _behind(system: System, marks: dict[GroupPartition, tuple[int, int]]) -> dict[GroupPartition, tuple[int, int]]:
    now, behind = _positions(system), {}
    if not now:
        return marks
    for partition, (was, end) in marks.items():
        # Drained idle partitions have no position any more.
        at, _ = now.get(partition, (end, end))
        goal = min(was + 1, end) if partition[1] == GATED else end
        if at < goal:
            behind[partition] = (at, goal)
    return behind


def _have_reached(system: System, marks: dict[GroupPartition, tuple[int, int]]) -> bool:
    return not _behind(system, marks)


def _ready(system: System) -> bool:
    server = Server(system.web.port)
    try:
        return server.ask("GET", "/readyz")[0] == 200
    except NoResponse:
        return False
    finally:
        server.close()


def _lags(system: System) -> list[tuple[str, str, int]] | None:
    with suppress(psycopg.Error), psycopg.connect(system.postgres.url, connect_timeout=3) as conn:
        conn.execute("SET statement_timeout = '5s'")
        return [(q, g, lag) for q, g, lag in conn.execute("SELECT queue, group_name, lag FROM penstock.lag").fetchall()]
    return None


def _is_drained(system: System) -> bool:
    lags = _lags(system)
    if lags is None or {(queue, group) for queue, group, _ in lags} != system.readers:
        return False
    return all(lag == 0 for _, _, lag in lags)
