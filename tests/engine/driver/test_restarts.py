"""A query that fails starts again from its last commit, and gives up after many failures without progress."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.backoff import Backoff
from penstock.core.errors import SparkFailure
from penstock.engine.cycle.cycle_runner import CycleRunner
from penstock.engine.query import Query
from tests.engine.pipelines import T0, Bench, counted, stream


@pytest.fixture(autouse=True)
def few_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Query, "max_restarts", 2)
    monkeypatch.setattr(Query, "restart_backoff", Backoff(0.01, 0.01))


def orders(count: int) -> list[tuple[str, dict[str, Any]]]:
    return [("k", {"ts": T0 + 1, "amount": i}) for i in range(count)]


def test_query_gives_up_after_many_failures_without_progress(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: CycleRunner, *args: Any) -> Any:
        raise SparkFailure("no executors")

    monkeypatch.setattr(CycleRunner, "compute", fail)
    bench.queue()
    bench.push(orders(3))
    with pytest.raises(SparkFailure, match=r"started 3 times in a row without progress; the last error: no executors"):
        bench.run(counted(stream()).to("totals"))


def test_restarts_are_counted_from_the_last_progress(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    compute, calls = CycleRunner.compute, 0

    def fail_every_second_time(self: CycleRunner, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 2 == 0:
            raise SparkFailure("no executors")
        return compute(self, *args)

    monkeypatch.setattr(CycleRunner, "compute", fail_every_second_time)
    bench.queue()
    bench.push(orders(8))
    bench.run(counted(stream()).to("totals"), max_events_per_cycle=1)
    assert bench.by_key("n") == {"k": 8}
    assert calls > 2 * Query.max_restarts
