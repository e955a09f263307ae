from __future__ import annotations

import psycopg

from penstock import Stream
from tests.engine.pipelines import Bench


def test_an_inner_join_with_an_empty_table_leaves_events_out_and_blames_none(bench: Bench) -> None:
    bench.queue()
    with psycopg.connect(bench.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE rates (currency text, rate numeric)")
    bench.push([("k", {"currency": "EUR", "amount": n}) for n in range(5)])
    made = Stream.from_("orders").enrich("SELECT currency, rate FROM rates", on="currency", how="inner").to("out")
    query = bench.run(made)

    assert query.status.events_in == 5
    assert bench.emitted("out") == []
    assert bench.letters() == []


def test_reduce_goes_on_from_events_in_time_to_late_ones(bench: Bench) -> None:
    bench.queue(partitions=1)
    t0 = 1_700_000_000_000
    bench.push([("k", {"ts": t0 + s * 1000, "n": n}) for n, s in enumerate((1, 12, 2))])
    made = Stream.from_("orders").window_tumbling(seconds=10, event_time="ts", late="include", idle_flush_seconds=3600)
    bench.run(made.reduce(lambda seen, event: [*seen, event["n"]], []).to("out"), flush=True)

    values = sorted(row["value"] for row in bench.emitted("out"))
    assert [0, 2] in values
