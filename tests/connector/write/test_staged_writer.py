"""Writes are visible after the commit, once, even if tasks fail or run twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from penstock.core.errors import Conflict, InvalidEvent, InvalidOption, InvalidRequest, NotFound, QueueFull
from penstock.log.write.staged_writes import WriteVersion
from tests.connector.direct_source import DirectSource, arrow, schema_of, sent
from tests.connector.maintenance import roll
from tests.engine.pipelines import Bench

VALUES = schema_of("key", "value")


def values(*numbers: int, key: str | None = "a") -> Any:
    return arrow(VALUES, [{"key": key, "value": f'{{"n": {n}}}'} for n in numbers])


def there(bench: Bench, queue: str = "orders") -> list[Any]:
    return [event.data["n"] for event in bench.events(queue)]


def left_over(bench: Bench) -> int:
    """The number of staged rows and uploads that were not deleted."""
    with psycopg.connect(bench.url) as conn:
        tables = conn.execute("SELECT relname FROM pg_class WHERE relname ~ '^chunks_[0-9]+_[0-9]+$'").fetchall()
        count = sql.SQL("SELECT count(*) FROM penstock.{} WHERE partition_id < 0")
        hidden = [conn.execute(count.format(sql.Identifier(table))).fetchone() for (table,) in tables]
        uploads = conn.execute("SELECT count(*) FROM penstock.uploads").fetchone()
    return sum(row[0] for row in (*hidden, uploads) if row is not None)


def test_write_is_visible_after_commit_in_the_order_of_its_tasks(bench: Bench, direct: DirectSource) -> None:
    bench.queue("orders", "key")
    writer = sent(direct.writer(VALUES, queue="orders"))
    parts = [sent(writer.write(iter(batches))) for batches in ([values(1), values(2, 3)], [], [values(4)])]
    assert there(bench) == []
    sent(writer).commit(parts)
    assert there(bench) == [1, 2, 3, 4]
    assert left_over(bench) == 0


def test_repeated_and_failed_tasks_leave_no_rows(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    writer = direct.writer(VALUES, queue="orders")
    parts = [writer.write(iter([values(1)])), writer.write(iter([values(2)]))]
    writer.write(iter([values(1)]))  # a second attempt at the first, whose answer never came

    def failing() -> Any:
        yield values(2)
        raise RuntimeError("the executor died")

    with pytest.raises(RuntimeError):
        writer.write(failing())
    writer.commit(parts)
    assert sorted(there(bench)) == [1, 2]
    assert left_over(bench) == 0


def test_task_after_the_commit_stages_nothing(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    writer = direct.writer(VALUES, queue="orders")

    def slow() -> Any:
        yield arrow(VALUES, [{"key": "a", "value": f'"{"x" * 5_000}{n}"'} for n in range(1000)])
        with ThreadPoolExecutor(1) as elsewhere:
            elsewhere.submit(lambda: writer.commit([writer.write(iter([values(1)]))])).result()
        yield values(2)

    with pytest.raises(Conflict, match="were deleted"):
        writer.write(slow())
    assert there(bench) == [1]
    assert left_over(bench) == 0


def test_aborted_write_leaves_no_rows(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    writer = direct.writer(VALUES, queue="orders")
    parts = [writer.write(iter([values(n)])) for n in range(3)]
    writer.abort([*parts[:2], None])
    assert left_over(bench) == 0
    with pytest.raises(Conflict, match="write them again"):
        writer.commit(parts)
    assert there(bench) == []


def test_repeated_commit_writes_once(bench: Bench, direct: DirectSource, caplog: pytest.LogCaptureFixture) -> None:
    bench.queue()
    for attempt in range(3):
        writer = direct.writer(VALUES, queue="orders", txnAppId="nightly", txnVersion=7)
        parts = [writer.write(iter([values(attempt)]))]
        writer.commit(parts)
        writer.commit(parts)
    older = direct.writer(VALUES, queue="orders", txnAppId="nightly", txnVersion=6)
    older.commit([older.write(iter([values(6)]))])
    newer = direct.writer(VALUES, queue="orders", txnAppId="nightly", txnVersion=8)
    newer.commit([newer.write(iter([values(8)]))])
    assert sorted(there(bench)) == [0, 8]
    assert left_over(bench) == 0
    warnings = [record.getMessage() for record in caplog.records if record.name == "penstock.connector"]
    assert len(warnings) == 6, "one for each repetition"
    assert "version 6 of 'nightly' is not newer than its last write to queue 'orders'" in warnings[-1]


def test_stream_that_restarts_its_batch_numbers_is_refused(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    writer: Any = direct.format(queue="orders", txnAppId="feed").streamWriter(VALUES, False)
    target = writer.target  # without Spark, the writer does not know its stream
    for batch in range(3):
        part = target.stage(WriteVersion("feed", batch, "first checkpoint"), iter([values(batch)]))
        writer.commit([part], batch)
        writer.commit([part], batch)
    assert sorted(there(bench)) == [0, 1, 2]
    anew = target.stage(WriteVersion("feed", 0, "second checkpoint"), iter([values(9)]))
    with pytest.raises(Conflict, match=r"'feed' has committed version 2 .*use another writer name"):
        writer.commit([anew], 0)
    writer.abort([anew], 0)
    assert sorted(there(bench)) == [0, 1, 2]
    assert left_over(bench) == 0


def test_write_across_a_segment_roll(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    writer = direct.writer(VALUES, queue="orders")
    parts = [writer.write(iter([values(1)]))]
    roll(bench.url)
    parts.append(writer.write(iter([values(2)])))
    writer.commit(parts)
    assert there(bench) == [1, 2]
    assert left_over(bench) == 0


def test_write_across_a_repartitioning_is_refused(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    writer = direct.writer(VALUES, queue="orders")
    parts = [writer.write(iter([values(1)]))]
    bench.penstock.queue("orders").repartition("hash", 3)
    with pytest.raises(Conflict, match="again"):
        writer.commit(parts)
    assert there(bench) == []


def test_write_waits_for_room_until_the_timeout(bench: Bench, direct: DirectSource) -> None:
    bench.penstock.queue("orders").config(max_depth_events=10).create("hash", 1)
    bench.penstock.queue("orders").group("slow").pop()
    bench.push([("a", {"n": n}) for n in range(9)])
    writer = direct.writer(VALUES, queue="orders", fullQueueTimeoutSeconds=0)
    parts = [writer.write(iter([values(9, 10, 11)]))]
    with pytest.raises(QueueFull, match="queue 'orders' is full"):
        writer.commit(parts)
    assert len(there(bench)) == 9


def test_write_that_waits_for_room_names_the_group(
    bench: Bench, direct: DirectSource, caplog: pytest.LogCaptureFixture
) -> None:
    bench.penstock.queue("orders").config(max_depth_events=2).create("hash", 1)
    bench.penstock.queue("orders").group("slow").pop()
    bench.push([("a", {"n": n}) for n in range(2)])
    writer = direct.writer(VALUES, queue="orders", fullQueueTimeoutSeconds=3)
    parts = [writer.write(iter([values(2)]))]
    with pytest.raises(QueueFull):
        writer.commit(parts)
    warnings = [record.getMessage() for record in caplog.records if record.name == "penstock.connector"]
    assert any(
        text.startswith("waiting") and "queue 'orders' is full: group 'slow' is 2 events behind" in text
        for text in warnings
    ), warnings


def test_event_metadata_columns_are_written(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    schema = schema_of("key", "value", "queue", "partition", "offset", "timestamp", "headers", "id", "eventTime")
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    row = {"key": "k", "value": "[1]", "queue": "x", "partition": 9, "offset": 9, "timestamp": moment, "id": "i"}
    writer = direct.writer(schema, queue="orders")
    whole = arrow(schema, [row | {"headers": {"h": "1"}, "eventTime": moment}])
    # A second batch without any of it.
    writer.commit([writer.write(iter([whole, arrow(schema, [{"value": None}])]))])
    by_key = {event.key: event for event in bench.events("orders")}
    event = by_key["k"]
    assert (event.data, event.given_id, event.event_time, event.headers) == ([1], "i", moment, {"h": "1"})
    assert (by_key[None].data, by_key[None].headers) == (None, {})


def test_row_without_value_column_is_the_event(bench: Bench, direct: DirectSource) -> None:
    bench.queue("orders", "key")
    schema = StructType(
        [
            StructField("customer", LongType()),
            StructField("total", DecimalType(10, 2)),
            StructField("day", DateType()),
            StructField("at", TimestampType()),
            StructField("tags", ArrayType(StringType())),
            StructField("counts", MapType(StringType(), IntegerType())),
            StructField("inner", StructType([StructField("m", MapType(StringType(), StringType()))])),
        ]
    )
    row = {
        "customer": 7,
        "total": Decimal("1.50"),
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "tags": ["a", None],
        "counts": {"x": 1},
        "inner": {"m": {"y": "z"}},
    }
    writer = direct.writer(schema, queue="orders", keyColumn="customer")
    writer.commit([writer.write(iter([arrow(schema, [row])]))])
    (event,) = bench.events("orders")
    assert event.key == "7"
    assert event.data == {
        "customer": 7,
        "total": 1.5,
        "day": "2026-01-31",
        "at": "2026-01-31T12:00:00Z",
        "tags": ["a", None],
        "counts": {"x": 1},
        "inner": {"m": {"y": "z"}},
    }


def test_invalid_event_aborts_the_write(bench: Bench, direct: DirectSource) -> None:
    bench.queue()
    writer = direct.writer(VALUES, queue="orders")
    bad = arrow(VALUES, [{"key": "a", "value": "1"}, {"key": "a", "value": "{not json"}])
    with pytest.raises(InvalidEvent) as refused:
        writer.write(iter([values(1), bad]))
    assert (refused.value.index, refused.value.field) == (1, "data")
    numbers = schema_of(x=DoubleType())
    rows = direct.writer(numbers, queue="orders")
    with pytest.raises(InvalidEvent, match="nan is not a JSON number"):
        rows.write(iter([arrow(numbers, [{"x": float("nan")}])]))
    with pytest.raises(InvalidEvent) as empty:
        writer.write(iter([values(1, key="")]))
    assert empty.value.field == "key"
    assert left_over(bench) == 0


@pytest.mark.parametrize(
    ("schema", "options", "hint"),
    [
        (schema_of("value", other=StringType()), {}, "column 'other' would be lost"),
        (schema_of(value=LongType()), {}, "column 'value' has to be text, and it is bigint"),
        (schema_of(b=BinaryType()), {}, r"column 'b' is binary, which JSON cannot represent: use base64"),
        (schema_of(s=StructType().add("v", VariantType())), {}, r"column 's\.v' is variant, .* to_json"),
        (schema_of("value", eventTime=StringType()), {}, "'eventTime' has to be a timestamp"),
        (schema_of("value", headers=StringType()), {}, "'headers' has to be map<string,string>"),
        (schema_of("value"), {"keyColumn": "customer"}, "'keyColumn' names 'customer', and the rows have value"),
    ],
)
def test_error_names_the_column_that_cannot_be_written(
    direct: DirectSource, schema: StructType, options: dict[str, str], hint: str
) -> None:
    with pytest.raises((InvalidRequest, InvalidOption), match=hint):
        direct.writer(schema, queue="orders", **options)


def test_overwrite_is_refused(direct: DirectSource) -> None:
    with pytest.raises(InvalidRequest, match=r'append-only log: use mode\("append"\)'):
        direct.format(queue="orders").writer(VALUES, True)
    with pytest.raises(InvalidRequest, match=r'use outputMode\("append"\)'):
        direct.format(queue="orders").streamWriter(VALUES, True)


def test_missing_queue_is_reported_before_tasks_start(bench: Bench, direct: DirectSource) -> None:
    with pytest.raises(NotFound, match="there is no queue 'orders'; create it with"):
        direct.writer(VALUES, queue="orders")
    bench.queue()
    writer = direct.writer(VALUES, queue="orders")
    bench.penstock.queue("orders").delete()
    with pytest.raises(NotFound, match="there is no queue 'orders'"):
        writer.write(iter([values(1)]))
    # What a task has said is not hidden behind a second error.
    writer.abort([])


def test_ids_are_refused_by_a_queue_that_deduplicates(bench: Bench, direct: DirectSource) -> None:
    bench.queue("orders", "key")
    schema = schema_of("value", "id")
    writer = direct.writer(schema, queue="orders")
    with pytest.raises(InvalidRequest, match="leave out the column 'id', or set dedup_window_seconds"):
        writer.write(iter([arrow(schema, [{"value": "1", "id": "a"}])]))
