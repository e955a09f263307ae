"""Batch reads: which events they return and which ranges they read from PostgreSQL."""

from __future__ import annotations

import json
import operator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import DateType, DoubleType, LongType, StringType, TimestampType

from penstock.connector.read.data_loss import EventsLost
from penstock.connector.read.task_ranges import make_tasks
from penstock.core.errors import CorruptChunk, InvalidEvent, InvalidOption, InvalidRequest, NotFound
from penstock.engine.cycle_plan import PartitionRange, SegmentRange
from tests.connector.direct_source import DirectSource, schema_of
from tests.connector.maintenance import forget, roll
from tests.engine.pipelines import Bench


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(json.loads(row["value"])["n"] for row in rows)


def fill(bench: Bench, count: int, *, first: int = 0, keys: int = 5, queue: str = "orders") -> None:
    bench.push([(f"k{n % keys}", {"n": n}) for n in range(first, first + count)], queue)


def test_event_columns(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    bench.push([{"key": "a", "data": [1, "ü"], "id": "first", "time": moment, "headers": {"h": "1"}}, {"data": None}])

    rows = direct.rows(queue="orders", columns="id,eventTime", schema=schema_of("id", "eventTime"))
    assert {row["id"]: row["eventTime"] for row in rows}["first"] == moment
    by_key = {row["key"]: row for row in direct.rows(queue="orders")}
    event = bench.events("orders")
    assert by_key["a"]["value"] == '[1,"ü"]'
    assert by_key["a"]["headers"] == [("h", "1")]
    assert by_key["a"]["queue"] == "orders"
    assert by_key[None]["value"] == "null"
    assert by_key[None]["headers"] is None
    assert {(row["partition"], row["offset"], row["timestamp"]) for row in by_key.values()} == {
        (e.partition_id, e.offset, e.appended_at) for e in event
    }


def test_read_across_segments_epochs_and_queues(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    bench.queue("others", "key")
    fill(bench, 100)
    roll(bench.url)
    fill(bench, 100, first=100)
    bench.penstock.queue("orders").repartition("hash", 3)
    fill(bench, 100, first=200)
    fill(bench, 50, first=300, queue="others")

    assert numbers(direct.rows(queue="orders")) == list(range(300))
    assert numbers(direct.rows(queue="orders, others", minPartitions=20)) == list(range(350))
    for key in ("k0", "k4"):
        wanted = [n for n in range(350) if f"k{n % 5}" == key]
        assert numbers(direct.rows(EqualTo(("key",), key), queue="orders,others")) == wanted
    assert numbers(direct.rows(EqualTo(("queue",), "others"), queue="orders,others")) == list(range(300, 350))


def test_empty_queue(bench: Bench, direct: DirectSource) -> None:
    bench.queue("orders", "key")
    assert direct.rows(queue="orders") == []
    assert direct.format(queue="orders", columns="key,offset", fields="n bigint").schema() == (
        "`key` string, `offset` bigint, n bigint"
    )


def test_key_filter_reads_one_partition(bench: Bench, direct: DirectSource) -> None:
    bench.queue("orders", "key")
    fill(bench, 50)
    (partition,) = direct.asked(EqualTo(("key",), "k3"), IsNotNull(("key",)), queue="orders")
    assert (partition.name, partition.start, partition.stop) == ("k3", 0, 10)
    assert len(direct.asked(In(("key",), ("k1", "k2", None)), queue="orders")) == 2
    assert direct.asked(EqualTo(("key",), "k1"), EqualTo(("key",), "k2"), queue="orders") == []
    assert len(direct.asked(key="k1", queue="orders")) == 1


@pytest.mark.parametrize(
    ("given", "span"),
    [
        (EqualTo(("offset",), 7), (7, 8)),
        (GreaterThan(("offset",), 7), (8, 100)),
        (GreaterThanOrEqual(("offset",), 7), (7, 100)),
        (LessThan(("offset",), 7), (0, 7)),
        (LessThanOrEqual(("offset",), 7), (0, 8)),
    ],
)
def test_offset_filter_reads_these_offsets(
    bench: Bench, direct: DirectSource, given: Filter, span: tuple[int, int]
) -> None:
    bench.queue(partitions=1)
    fill(bench, 100)
    (partition,) = direct.asked(given, IsNotNull(("offset",)), queue="orders")
    assert (partition.start, partition.stop) == span
    assert len(direct.rows(given, queue="orders")) == span[1] - span[0]


def test_time_filter_reads_the_offsets_of_that_time(bench: Bench, direct: DirectSource) -> None:
    bench.queue(partitions=2)
    for first in (0, 10, 20, 30):
        fill(bench, 10, first=first)
        if first == 10:
            roll(bench.url)
    rows = direct.rows(queue="orders")
    for moment in {row["timestamp"] for row in rows}:
        for kind, holds in (
            (EqualTo, operator.eq),
            (GreaterThan, operator.gt),
            (GreaterThanOrEqual, operator.ge),
            (LessThan, operator.lt),
            (LessThanOrEqual, operator.le),
        ):
            given = kind(("timestamp",), moment)
            wanted = [row for row in rows if holds(row["timestamp"], moment)]
            assert numbers(direct.rows(given, queue="orders")) == numbers(wanted)
            assert sum(partition.stop - partition.start for partition in direct.asked(given, queue="orders")) == len(
                wanted
            )
    latest = max(row["timestamp"] for row in rows)
    since, after = latest.isoformat(), (latest + timedelta(seconds=1)).isoformat()
    last = [row for row in rows if row["timestamp"] == latest]
    assert numbers(direct.rows(queue="orders", startingTimestamp=since)) == numbers(last)
    assert numbers(direct.rows(queue="orders", endingTimestamp=after)) == numbers(rows)


def test_other_filters_are_left_to_spark(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    reader = direct.reader(queue="orders")
    given = [Not(EqualTo(("key",), "a")), EqualTo(("value",), "1"), EqualTo(("headers", "x"), "1"), IsNotNull(("key",))]
    assert list(reader.pushFilters(given)) == given
    # What Spark adds to a comparison, in front of it, goes with it.
    assert list(direct.reader(queue="orders").pushFilters([IsNotNull(("key",)), EqualTo(("key",), "a")])) == []
    # A field of the JSON that is called like a column of the event is none.
    schema = schema_of("offset", key=StringType())
    fields = direct.format(queue="orders", columns="offset").reader(schema)
    by_key: list[Filter] = [EqualTo(("key",), "a")]
    assert list(fields.pushFilters(by_key)) == by_key


def test_starting_and_ending_offsets_by_partition(bench: Bench, direct: DirectSource) -> None:
    bench.queue(partitions=1)
    fill(bench, 100)
    (partition,) = {row["partition"] for row in direct.rows(queue="orders")}
    given: dict[str, Any] = {"startingOffsets": f'{{"{partition}": 10}}', "endingOffsets": f'{{"{partition}": 20}}'}
    assert numbers(direct.rows(queue="orders", **given)) == list(range(10, 20))
    assert numbers(direct.rows(queue="orders", startingOffsets=f'{{"{partition}": -1}}')) == []
    assert numbers(direct.rows(queue="orders", startingOffsets=f'{{"{partition}": -2}}')) == list(range(100))
    assert direct.rows(queue="orders", startingOffsets="latest") == []
    with pytest.raises(InvalidOption, match="'startingOffsets' names partition 99, which the queue does not have"):
        direct.rows(queue="orders", startingOffsets='{"99": 1}')
    with pytest.raises(InvalidOption, match=f"'endingOffsets' sets partition {partition} to offset 101"):
        direct.rows(queue="orders", endingOffsets=f'{{"{partition}": 101}}')


def test_min_partitions_splits_partitions(bench: Bench, direct: DirectSource) -> None:
    bench.queue(partitions=3)
    fill(bench, 100, keys=50)
    roll(bench.url)
    fill(bench, 101, first=100, keys=50)
    assert len(direct.reader(queue="orders").partitions()) == 1
    assert len(direct.reader(queue="orders", minPartitions=7).partitions()) == 7
    for count in (2, 3, 4, 7, 10, 150, 201, 500):
        assert len(direct.reader(queue="orders", minPartitions=count).partitions()) == min(count, 201)
        assert numbers(direct.rows(queue="orders", minPartitions=count)) == list(range(201))


@pytest.mark.parametrize("at_least", [4, 5, 10, 11, 29])
def test_partitions_are_split_into_consecutive_pieces(at_least: int) -> None:
    partitions = [PartitionRange(number, 1, 0, str(number), False, [SegmentRange(1, 0, 10)]) for number in range(3)]
    found = make_tasks(partitions, {1: "orders"}, at_least)
    assert len(found) == at_least
    pieces = sorted(
        (partition.partition_id, partition.start, partition.stop) for part in found for partition in part.ranges()
    )
    assert all(before[2] == after[1] for before, after in pairwise(pieces) if before[0] == after[0])
    assert sum(stop - start for _, start, stop in pieces) == 30


def test_fields_have_types(bench: Bench, direct: DirectSource) -> None:
    bench.queue(partitions=1)
    bench.push(
        [
            {"data": {"n": 1, "amount": 2.5, "at": "2026-01-31T12:00:00Z", "key": "inner"}},
            {"data": {"n": "many"}},
            {"data": "no object"},
        ]
    )
    schema = schema_of("offset", n=LongType(), amount=DoubleType(), at=TimestampType(), key=StringType())
    options: dict[str, Any] = {"queue": "orders", "columns": "offset"}
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    nothing = {"n": None, "amount": None, "at": None, "key": None}
    first = {"offset": 0, "n": 1, "amount": 2.5, "at": moment, "key": "inner"}
    assert direct.rows(schema=schema, **options) == [first, {"offset": 1, **nothing}, {"offset": 2, **nothing}]
    assert direct.rows(schema=schema, mode="dropMalformed", **options) == [first]
    with pytest.raises(InvalidEvent, match=r"queue 'orders', partition \d+, offset 1: field 'n': text \(many\)"):
        direct.rows(schema=schema, mode="failFast", **options)


def test_invalid_schema_is_refused(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    with pytest.raises(InvalidRequest, match="the event column 'key' is string, and the schema says bigint"):
        direct.reader(queue="orders", schema=schema_of(key=LongType()))
    with pytest.raises(InvalidRequest, match="field 'day' is of type date32"):
        direct.reader(queue="orders", schema=schema_of("offset", day=DateType()))
    twice = schema_of(n=LongType()).add("n", LongType())
    with pytest.raises(InvalidOption, match="the field 'n' has the name of an event column"):
        direct.reader(queue="orders", schema=twice)


def test_missing_queue_is_reported(direct: DirectSource) -> None:
    with pytest.raises(NotFound, match="there is no queue 'orders'"):
        direct.rows(queue="orders")


def test_events_deleted_by_retention_are_a_loss(bench: Bench, direct: DirectSource) -> None:
    bench.queue(partitions=1)
    fill(bench, 100)
    (partition,) = {row["partition"] for row in direct.rows(queue="orders")}
    roll(bench.url)
    fill(bench, 10, first=100)
    planned = direct.reader(queue="orders")
    parts = planned.partitions()
    forget(bench.url)

    assert numbers(direct.rows(queue="orders")) == list(range(100, 110))
    begin: dict[str, Any] = {"startingOffsets": f'{{"{partition}": 40}}'}
    with pytest.raises(EventsLost, match=f"60 events of queue 'orders' .* partition {partition}, offsets 40 to 99"):
        direct.rows(queue="orders", **begin)
    assert numbers(direct.rows(queue="orders", failOnDataLoss=False, **begin)) == list(range(100, 110))
    with pytest.raises(EventsLost, match="events of queue 'orders' were deleted"):
        list(planned.read(parts[0]))


def test_segment_dropped_after_planning_loses_only_its_events(
    bench: Bench, direct: DirectSource, caplog: pytest.LogCaptureFixture
) -> None:
    bench.queue(partitions=1)
    fill(bench, 100)
    roll(bench.url)
    fill(bench, 10, first=100)
    reader = direct.reader(queue="orders", failOnDataLoss=False)
    (part,) = reader.partitions()
    forget(bench.url)
    assert numbers([row for batch in reader.read(part) for row in batch.to_pylist()]) == list(range(100, 110))
    (said,) = [record.getMessage() for record in caplog.records if record.name == "penstock.connector"]
    assert "100 events of queue 'orders' were deleted" in said


def test_damaged_chunk_is_reported_or_skipped(bench: Bench, direct: DirectSource) -> None:
    bench.queue(partitions=1)
    fill(bench, 10)
    fill(bench, 5, first=10)
    with psycopg.connect(bench.url) as conn:
        conn.execute("UPDATE penstock.chunks_1_1 SET body = substr(body, 1, 12) WHERE end_offset = 10")
    with pytest.raises(CorruptChunk, match=r"queue 'orders', partition \d+: offsets 0 to 9"):
        direct.rows(queue="orders")
    assert numbers(direct.rows(queue="orders", failOnDataLoss=False)) == list(range(10, 15))
