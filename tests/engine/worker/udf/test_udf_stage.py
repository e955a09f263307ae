"""User-defined functions after a Spark step run in stages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock import agg
from penstock.engine.worker.udf.udf_stage import align_to_events
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, stream


def batch(*events: tuple[int, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"__partition": partition, "__offset": offset} for partition, offset in events])


def test_all_rows_of_an_event_are_in_one_batch() -> None:
    batches = [
        batch((1, 0), (1, 1), (1, 1)),
        batch((1, 1), (1, 1)),
        batch(),
        batch((1, 1), (1, 2), (2, 2)),
        batch((3, 2)),
    ]
    aligned = [[tuple(row.values()) for row in part.to_pylist()] for part in align_to_events(iter(batches))]
    assert aligned == [[(1, 0)], [(1, 1)] * 5 + [(1, 2)], [(2, 2)], [(3, 2)]]
    assert list(align_to_events(iter([]))) == []


def test_inferred_types_of_a_stage_are_stored(bench: Bench) -> None:
    """When the query starts again, the newest events do not show the types."""

    def add_cost(event: dict[str, Any]) -> Any:
        return {**event, "cost": event["amount"] * 2}

    made = stream(schema={"ts": "bigint", "kind": "string"}).filter("kind = 'refund'").map(add_cost)
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
