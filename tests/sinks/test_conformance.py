"""The built-in sinks pass the conformance tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.log.event import Event
from penstock.sinks import Call, File, Parquet, Sink
from penstock.sinks.conformance import SinkConformance


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
        self.received: list[Any] = []

    def make(self) -> Sink:
        def remember(events: Sequence[Event]) -> None:
            self.received += [event.data for event in events]

        return Call(remember)

    async def written(self) -> list[Any]:
        return self.received


class DuplicatingSink(Sink):
    name = "duplicating"
    guarantee = "exactly_once"

    def __init__(self, got: list[Any]) -> None:
        self._got = got

    async def write(self, events: Sequence[Event]) -> None:
        self._got += [event.data for event in events]


def test_conformance_fails_for_a_wrong_guarantee() -> None:
    got: list[Any] = []

    class Checked(SinkConformance):
        def make(self) -> Sink:
            return DuplicatingSink(got)

        async def written(self) -> list[Any]:
            return got

    with pytest.raises(AssertionError):
        Checked().test_repeated_batch_arrives_as_guaranteed()
