"""A query's sinks run where it is driven, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.sinks import File
from tests.conditions import eventually
from tests.engine.pipelines import Bench, stream


def numbers(path: Path) -> list[int]:
    return sorted(json.loads(line)["i"] for line in path.read_text().splitlines()) if path.exists() else []


@pytest.mark.parametrize("machines", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_standbys_sinks_write_nothing_until_it_drives(bench: Bench, tmp_path: Path, machines: int) -> None:
    bench.queue(partitions=4)
    paths = [tmp_path / f"machine-{i % machines}" / "out.jsonl" for i in range(2)]
    first, second = (stream().filter("i >= 0").to("out", File(path)) for path in paths)

    def push(*some: int) -> None:
        bench.push((f"k{i}", {"i": i}) for i in some)

    push(*range(10))
    with bench.running(first) as driver, bench.running(second) as standby:
        eventually(lambda: standby.status.state == "standby", "the stand-by")
        for i in range(10, 30):
            push(i)
        eventually(lambda: numbers(paths[0]) == list(range(30)), "the driver's file, with everything")
        driver.stop()
        push(*range(30, 40))
        there = 40 if machines == 1 else 10
        eventually(lambda: len(numbers(paths[1])) == there, "the file of the one that took over")
        assert numbers(paths[1]) == list(range(40 - there, 40))
    assert numbers(paths[0]) == list(range(40 if machines == 1 else 30))
