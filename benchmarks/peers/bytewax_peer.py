"""Bytewax: a dataflow with event-time windows, and a sink that uses COPY."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found]  # in this peer's own environment
import orjson
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]  # same
from bytewax.inputs import DynamicSource, StatelessSourcePartition  # type: ignore[import-not-found]  # same
from bytewax.operators.windowing import (  # type: ignore[import-not-found]  # same
    EventClock,
    TumblingWindower,
    fold_window,
)
from bytewax.outputs import DynamicSink, StatelessSinkPartition  # type: ignore[import-not-found]  # same
from bytewax.testing import run_main  # type: ignore[import-not-found]  # same

from benchmarks.peers.windows import LATENESS_MS, WINDOW_MS, WindowJob, serve

_BATCH = 2_000
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_EPOCH_MS = int(_EPOCH.timestamp() * 1000)
_Folded = tuple[int, float, float]


class _Lines(StatelessSourcePartition):  # type: ignore[misc]  # untyped base class
    def __init__(self, files: list[str]) -> None:
        self._lines = _lines(files)

    def next_batch(self) -> list[bytes]:
        batch = list(islice(self._lines, _BATCH))
        if not batch:
            raise StopIteration
        return batch


class _Files(DynamicSource):  # type: ignore[misc]  # same
    def __init__(self, files: list[str]) -> None:
        self._files = files

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Lines:
        return _Lines(self._files)


class _Rows(StatelessSinkPartition):  # type: ignore[misc]  # same
    def __init__(self, job: WindowJob) -> None:
        self._job = job
        self._rows: list[str] = []

    def write_batch(self, items: list[tuple[str, tuple[int, _Folded]]]) -> None:
        for key, (window, (count, total, highest)) in items:
            self._rows.append(f"{key},{_EPOCH_MS + window * WINDOW_MS},{count},{total:.2f},{highest:.2f}\n")

    def close(self) -> None:
        self._job.copy(self._rows)


class _Table(DynamicSink):  # type: ignore[misc]  # same
    def __init__(self, job: WindowJob) -> None:
        self._job = job

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Rows:
        return _Rows(self._job)


def drain(job: WindowJob) -> None:
    flow = Dataflow("windows")
    lines = op.input("lines", flow, _Files(job.files))
    events = op.map("parse", lines, _parse)
    clock = EventClock(
        lambda event: datetime.fromtimestamp(event[0] / 1000, UTC),
        timedelta(milliseconds=LATENESS_MS),
        # Event time only. With the system clock, events would be late on a busy machine.
        now_getter=lambda: _EPOCH,
        to_system_utc=lambda _: None,
    )
    windower = TumblingWindower(timedelta(milliseconds=WINDOW_MS), _EPOCH)
    folded = fold_window("fold", events, clock, windower, lambda: (0, 0.0, 0.0), _add, _merge)
    op.output("rows", folded.down, _Table(job))
    run_main(flow)


def _lines(files: list[str]) -> Iterator[bytes]:
    for path in files:
        yield from Path(path).read_bytes().splitlines()


def _parse(line: bytes) -> tuple[str, tuple[int, float]]:
    event: dict[str, Any] = orjson.loads(line)
    return event["customer"], (event["ts"], event["amount"])


def _add(accumulator: _Folded, event: tuple[int, float]) -> _Folded:
    count, total, highest = accumulator
    return count + 1, total + event[1], max(highest, event[1])


def _merge(one: _Folded, other: _Folded) -> _Folded:
    return one[0] + other[0], one[1] + other[1], max(one[2], other[2])


if __name__ == "__main__":
    serve(["bytewax"], drain)
