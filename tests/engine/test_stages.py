"""Python stages after something that Spark does: parts of an event stay together, and types stay what they were."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock import agg
from penstock.engine.worker.udf_stage import cut_by_event
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, stream


def batch(*places: tuple[int, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"__partition": partition, "__offset": offset} for partition, offset in places])


def test_the_parts_of_an_event_are_in_one_batch() -> None:
    given = [
        batch((1, 0), (1, 1), (1, 1)),
        batch((1, 1), (1, 1)),
        batch(),
        batch((1, 1), (1, 2), (2, 2)),
        batch((3, 2)),
    ]
    cut = [[tuple(row.values()) for row in one.to_pylist()] for one in cut_by_event(iter(given))]
    assert cut == [[(1, 0)], [(1, 1)] * 5 + [(1, 2)], [(2, 2)], [(3, 2)]]
    assert list(cut_by_event(iter([]))) == []


def test_types_of_what_a_stage_gives_are_remembered(bench: Bench) -> None:
    """The newest events may be of another kind when the query is started again."""

    def costed(event: dict[str, Any]) -> Any:
        return {**event, "cost": event["amount"] * 2}

    made = stream(schema={"ts": "bigint", "kind": "string"}).filter("kind = 'refund'").map(costed)
    made = made.window_tumbling(seconds=3600, event_time="ts", idle_flush_seconds=NEVER_IDLE)
    made = made.aggregate({"most": agg.max("cost")}).to("totals")
    bench.queue(partitions=1)
    bench.push([("k", {"ts": T0, "kind": "refund", "amount": n}) for n in (4, 5)])
    bench.run(made, flush=False)
    bench.push([("k", {"ts": T0, "kind": "sale", "amount": 1})] * 1000)
    bench.push([("k", {"ts": T0, "kind": "refund", "amount": 6})])
    bench.push([("k", {"ts": T0, "kind": "sale", "amount": 1})] * 1000)
    bench.run(made)

    assert bench.letters() == []
    assert bench.by_key("most") == {"k": 12}
