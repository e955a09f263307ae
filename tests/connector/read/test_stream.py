"""Streaming reads: offsets, limits, new partitions, lost events, and the group of a stream."""

from __future__ import annotations

from collections import Counter

import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.connector.read.data_loss import EventsLost
from penstock.core.errors import GroupBusy, QueueFull
from tests.conditions import eventually
from tests.connector.direct_source import DirectSource, ranges
from tests.connector.maintenance import aged, forget, roll
from tests.connector.read.test_batch import fill, numbers
from tests.engine.pipelines import Bench


def test_batches_are_consecutive_and_repeatable(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    fill(bench, 100)
    reader = direct.stream(queue="orders", startingOffsets="earliest", maxRecordsPerTrigger=30)
    start = reader.initialOffset()
    seen, planned = [], []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        rows = direct.batch(reader, start, end)
        assert len(rows) <= 30
        planned.append((start, end, rows))
        seen += rows
        start = end
        if len(planned) == 2:
            roll(bench.url)
            fill(bench, 20, first=100)
    assert numbers(seen) == list(range(120))
    # Another process, with nothing but what Spark has kept.
    again = direct.stream(queue="orders")
    for start, end, rows in planned:
        assert direct.batch(again, start, end) == rows
    assert reader.reportLatestOffset() == planned[-1][1]
    assert reader.latestOffset({}, ReadAllAvailable()) == planned[-1][1]


def test_stream_starts_at_the_end_by_default(bench: Bench, direct: DirectSource) -> None:
    bench.queue("orders", "key")
    fill(bench, 10)
    reader = direct.stream(queue="orders")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    # A partition that comes later is read from its beginning.
    fill(bench, 10, first=10, keys=10)
    end, rows = direct.next(reader, start)
    assert numbers(rows) == list(range(10, 20))
    assert direct.next(reader, end) == (end, [])


def test_starting_timestamp_starting_offsets_and_min_partitions(bench: Bench, direct: DirectSource) -> None:
    bench.queue(partitions=1)
    fill(bench, 20)
    fill(bench, 20, first=20)
    moment = max(row["timestamp"] for row in direct.rows(queue="orders")).isoformat()
    reader = direct.stream(queue="orders", startingTimestamp=moment, minPartitions=3)
    start = reader.initialOffset()
    end, rows = direct.next(reader, start)
    assert numbers(rows) == list(range(20, 40))
    assert len(reader.partitions(start, end)) == 3
    (partition,) = end
    some = direct.stream(queue="orders", startingOffsets=f'{{"{partition}": 33}}')
    assert numbers(direct.next(some, some.initialOffset())[1]) == list(range(33, 40))


def test_available_now_ends_at_the_end_of_its_start(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    fill(bench, 10)
    reader = direct.stream(queue="orders", startingOffsets="earliest")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    fill(bench, 10, first=10)
    fill(bench, 10, first=20, keys=50)
    some, rows = direct.next(reader, start)
    assert numbers(rows) == list(range(10))
    assert reader.latestOffset(some, ReadMaxRows(5)) == some


def test_stream_of_one_key_reads_one_partition(bench: Bench, direct: DirectSource) -> None:
    bench.queue("orders", "key")
    fill(bench, 50)
    reader = direct.stream(queue="orders", startingOffsets="earliest", key="k3")
    start = reader.initialOffset()
    end, rows = direct.next(reader, start)
    assert {row["key"] for row in rows} == {"k3"}
    assert [partition.name for part in reader.partitions(start, end) for partition in ranges(part).ranges()] == ["k3"]


def test_older_epochs_are_read_first(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    fill(bench, 20)
    bench.penstock.queue("orders").repartition("hash", 5)
    fill(bench, 20, first=20)
    reader = direct.stream(queue="orders", startingOffsets="earliest", maxRecordsPerTrigger=25)
    end, rows = direct.next(reader, reader.initialOffset())
    assert set(range(20)) <= set(numbers(rows))
    assert numbers(rows + direct.next(reader, end)[1]) == list(range(40))


def test_stream_fails_or_continues_after_a_loss(bench: Bench, direct: DirectSource) -> None:
    bench.queue(partitions=1)
    fill(bench, 100)
    reader = direct.stream(queue="orders", startingOffsets="earliest", maxRecordsPerTrigger=30)
    start, _ = direct.next(reader, reader.initialOffset())
    roll(bench.url)
    fill(bench, 10, first=100)
    forget(bench.url)
    with pytest.raises(EventsLost, match=r"70 events of queue 'orders' were deleted .* failOnDataLoss"):
        direct.next(reader, start)
    careless = direct.stream(queue="orders", failOnDataLoss=False, maxRecordsPerTrigger=30)
    assert numbers(direct.next(careless, start)[1]) == list(range(100, 110))


def test_checkpoint_of_a_deleted_queue_is_a_loss(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    fill(bench, 10)
    reader = direct.stream(queue="orders", startingOffsets="earliest")
    start, _ = direct.next(reader, reader.initialOffset())
    bench.penstock.queue("orders").delete()
    bench.queue()
    fill(bench, 3)
    with pytest.raises(EventsLost, match="10 events of queue 'orders' were deleted"):
        reader.latestOffset(start, ReadAllAvailable())
    careless = direct.stream(queue="orders", failOnDataLoss=False)
    assert numbers(direct.next(careless, start)[1]) == [0, 1, 2]


def test_stream_continues_at_the_end_of_a_restored_queue(
    bench: Bench, direct: DirectSource, caplog: pytest.LogCaptureFixture
) -> None:
    bench.queue(partitions=1)
    fill(bench, 3)
    (partition,) = {str(row["partition"]) for row in direct.rows(queue="orders")}
    # Where it stood before a backup was restored; and one that is no longer there.
    start = {partition: 10, "99": 5}
    reader = direct.stream(queue="orders", failOnDataLoss=False)
    here, rows = direct.next(reader, start)
    assert (here, rows) == ({partition: 3}, [])
    for batch in range(2):
        assert direct.next(reader, here) == (here, [])
        fill(bench, 2, first=3 + 2 * batch)
        here, rows = direct.next(reader, here)
        assert numbers(rows) == [3 + 2 * batch, 4 + 2 * batch]
    limited = direct.stream(queue="orders", failOnDataLoss=False, maxRecordsPerTrigger=1)
    assert direct.next(limited, start) == ({partition: 7}, [])
    said = [record.getMessage() for record in caplog.records if record.name == "penstock.connector"]
    assert len(said) == 2, "once by each of both streams"
    assert "12 events of queue 'orders' were deleted" in said[0]


def test_loss_is_logged_once(bench: Bench, direct: DirectSource, caplog: pytest.LogCaptureFixture) -> None:
    bench.queue(partitions=1)
    fill(bench, 20)
    reader = direct.stream(queue="orders", startingOffsets="earliest", maxRecordsPerTrigger=5, failOnDataLoss=False)
    start, _ = direct.next(reader, reader.initialOffset())
    roll(bench.url)
    fill(bench, 3, first=20)
    forget(bench.url)
    assert numbers(direct.next(reader, start)[1]) == [20, 21, 22]
    assert numbers(direct.next(reader, start)[1]) == [20, 21, 22]
    assert [record.name for record in caplog.records].count("penstock.connector") == 1


def test_limit_is_shared_by_queues_of_different_epochs(bench: Bench, direct: DirectSource) -> None:
    for queue in ("orders", "others"):
        bench.queue(queue, partitions=1)
    fill(bench, 5, queue="others")
    bench.penstock.queue("others").repartition("hash", 2)
    fill(bench, 100)
    fill(bench, 100, first=100, queue="others")
    reader = direct.stream(queue="orders,others", startingOffsets="earliest", maxRecordsPerTrigger=30)
    start, rows = direct.next(reader, reader.initialOffset())
    assert len(rows) == 30
    for _ in range(2):
        start, rows = direct.next(reader, start)
        assert Counter(row["queue"] for row in rows) == {"orders": 10, "others": 20}, "as much of each partition"


def test_group_follows_the_stream(bench: Bench, direct: DirectSource) -> None:
    def lag() -> int:
        return int(bench.ask("SELECT lag FROM penstock.lag WHERE group_name = 'spark'"))

    bench.queue()
    fill(bench, 100)
    reader = direct.stream(queue="orders", startingOffsets="earliest", group="spark", maxRecordsPerTrigger=30)
    first, _ = direct.next(reader, reader.initialOffset())
    assert lag() == 100
    reader.commit(first)
    assert lag() == 70
    second, _ = direct.next(reader, first)
    reader.commit(second)
    reader.commit(first)
    assert lag() == 40
    again = direct.stream(queue="orders", startingOffsets="latest", group="spark")
    again.latestOffset(again.initialOffset(), ReadAllAvailable())
    assert lag() == 0


def test_retention_waits_for_the_group_of_a_stream(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    fill(bench, 100)
    roll(bench.url)
    reader = direct.stream(queue="orders", startingOffsets="earliest", group="spark")
    end, rows = direct.next(reader, reader.initialOffset())
    kept = aged(bench.url)
    assert (kept.dropped, kept.waiting) == (0, 1), "what was read is not done before the stream has committed it"
    assert numbers(direct.rows(queue="orders")) == numbers(rows) == list(range(100))
    reader.commit(end)
    assert aged(bench.url).dropped == 1


def test_backpressure_includes_the_group_of_a_stream(bench: Bench, direct: DirectSource) -> None:
    def takes_more() -> bool:
        try:
            fill(bench, 1, first=100)
        except QueueFull:
            return False
        return True

    bench.queue()
    bench.penstock.queue("orders").config(max_depth_events=100).create()
    reader = direct.stream(queue="orders", startingOffsets="earliest", group="spark")
    start = reader.initialOffset()
    reader.latestOffset(start, ReadAllAvailable())
    fill(bench, 100)
    end, _ = direct.next(reader, start)
    assert not takes_more()
    reader.commit(end)
    eventually(takes_more, "how far behind the group is was measured again")


def test_group_reads_replayed_dead_letters(bench: Bench, direct: DirectSource) -> None:
    bench.queue("orders", "key")
    fill(bench, 3)
    readers = {group: direct.stream(queue="orders", group=group) for group in ("spark", "other")}
    starts = {group: reader.initialOffset() for group, reader in readers.items()}
    for group, reader in readers.items():
        reader.latestOffset(starts[group], ReadAllAvailable())
    bench.push([("k9", {"n": 9})])
    events = bench.penstock.queue("orders").group("spark").batch(10).pop()
    bench.penstock.ack(events, "dead_letter", error="no")
    assert bench.redrive() == 1
    assert numbers(direct.next(readers["spark"], starts["spark"])[1]) == [9, 9]
    assert numbers(direct.next(readers["other"], starts["other"])[1]) == [9]


def test_group_of_a_query_is_refused(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    with psycopg.connect(bench.url) as conn:
        bench.penstock.queue("orders").group("mine").pop()
        conn.execute("UPDATE penstock.groups SET query_id = 'q'")
    reader = direct.stream(queue="orders", group="mine")
    with pytest.raises(GroupBusy, match="belongs to the query 'q': choose another name"):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def test_stream_reconnects(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    fill(bench, 10)
    reader = direct.stream(queue="orders", startingOffsets="earliest")
    start = reader.initialOffset()
    with psycopg.connect(bench.url, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock connector'"
        )
    assert numbers(direct.next(reader, start)[1]) == list(range(10))
