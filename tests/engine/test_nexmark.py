"""The Nexmark queries have the same results as in DuckDB."""

from __future__ import annotations

from pathlib import Path

import pytest

import benchmarks.nexmark
from benchmarks.nexmark.generator import generate
from benchmarks.nexmark.oracle import PARTS, comparable, expected_results
from penstock import Stream
from penstock.stream.statements.statement_parser import parse_application
from tests.engine.pipelines import Bench

TEXT = (Path(benchmarks.nexmark.__file__).parent / "queries.sql").read_text()
#: The other queries run only in the long tests.
SHORT = ("q3", "q5", "q7", "q12")


@pytest.mark.parametrize(
    "query", [pytest.param(q, marks=[] if q in SHORT else [pytest.mark.long], id=q) for q in PARTS]
)
def test_nexmark_query_equals_duckdb(bench: Bench, query: str) -> None:
    application = parse_application(Stream, TEXT, "queries.sql")
    events = list(generate(4000, seed=11))
    for queue in application.queues.values():
        bench.queue(queue.name, partitions=queue.partitions)
        bench.push(((event.key, event.data) for event in events if event.queue == queue.name), queue.name)
    for part in PARTS[query]:
        wanted = application.queries[part]
        bench.run(wanted.stream, part, max_events_per_cycle=1500, **wanted.options)

    spelt = {(e.data["auction"], e.data["bidder"], e.data["price"], e.data["dateTime"]): e for e in bench.events("bid")}
    bids = [event.data for event in events if event.queue == "bid"]
    appended = [spelt[b["auction"], b["bidder"], b["price"], b["dateTime"]].appended_at for b in bids]
    expected = expected_results(events, {"bid": appended}, query)
    assert expected, "the query has no result"
    assert comparable(bench.emitted(query)) == expected
    assert [letter for name in application.queues for letter in bench.letters(name)] == []
