"""The sinks that come along do what the contract says, by the tests that users run on theirs."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.log.event import Event
from penstock.sinks import Call, Console, File, Parquet, Sink
from penstock.sinks.conformance import SinkConformance, made_events


class TestFile(SinkConformance):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "out.jsonl"

    def make(self) -> Sink:
        return File(self.path)

    async def written(self) -> list[Any]:
        return [json.loads(line) for line in self.path.read_bytes().split(b"\n")[:-1]]


class TestRotatedFile(TestFile):
    def make(self) -> Sink:
        return File(self.path, rotate_bytes=20)

    async def written(self) -> list[Any]:
        files = [*sorted(self.path.parent.glob("out-*.jsonl")), self.path]
        return [json.loads(line) for file in files for line in file.read_bytes().split(b"\n")[:-1]]


class TestParquet(SinkConformance):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "parts"

    def make(self) -> Sink:
        return Parquet(self.path)

    async def written(self) -> list[Any]:
        rows = [row for part in sorted(self.path.glob("*.parquet")) for row in pq.read_table(part).to_pylist()]
        return [{name: value for name, value in row.items() if name[0] != "_"} for row in rows]


class TestCall(SinkConformance):
    @pytest.fixture(autouse=True)
    def _place(self) -> None:
        self.got: list[Any] = []

    def make(self) -> Sink:
        def remember(events: Sequence[Event]) -> None:
            self.got += [event.data for event in events]

        return Call(remember)

    async def written(self) -> list[Any]:
        return self.got


class Forgetful(Sink):
    name = "forgetful"
    guarantee = "exactly_once"

    def __init__(self, got: list[Any]) -> None:
        self._got = got

    async def write(self, events: Sequence[Event]) -> None:
        self._got += [event.data for event in events]


def test_a_sink_that_promises_too_much_is_found_out() -> None:
    got: list[Any] = []

    class Checked(SinkConformance):
        def make(self) -> Sink:
            return Forgetful(got)

        async def written(self) -> list[Any]:
            return got

    with pytest.raises(AssertionError):
        Checked().test_a_batch_that_comes_again_is_there_at_least_once_or_exactly_once()


def test_the_console_prints_windows_as_people_expect_them() -> None:
    text = io.StringIO()
    window = {
        "key": "boiler",
        "window_start": "2026-01-31T12:00:00+00:00",
        "window_end": "2026-01-31T12:00:05+00:00",
        "avg": 61.23,
        "min": 40.1,
        "max": 83.94,
        "count": 50,
        "alerts": 2,
    }
    quiet = {**window, "alerts": 0}
    evil = {"text": "\x1b[2J"}

    asyncio.run(Console(text).write([*made_events([window, quiet, 7, evil], key="boiler")]))

    assert text.getvalue().splitlines() == [
        "[2026-01-31T12:00:00Z] boiler: avg=61.2 min=40.1 max=83.9 count=50 [2 ALERTS]",
        "[2026-01-31T12:00:00Z] boiler: avg=61.2 min=40.1 max=83.9 count=50",
        "[2026-01-31T12:00:00Z] boiler: 7",
        "[2026-01-31T12:00:00Z] boiler: text=\\x1b[2J",
    ]


def test_the_console_is_coloured_on_a_terminal() -> None:
    text = io.StringIO()
    asyncio.run(Console(text, color=True).write(made_events([{"alerts": 1}])))
    assert "\x1b[" in text.getvalue()
