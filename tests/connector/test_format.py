"""The format in a plain PySpark session."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.conftest import ROOT
from tests.connector.maintenance import forget, roll
from tests.connector.read.test_batch import fill
from tests.connector.write.test_staged_writer import left_over
from tests.engine.pipelines import PATIENCE, Bench, counted, stream
from tests.servers import Server


class Session:
    """A session of Spark's, and where the database is."""

    def __init__(self, spark: SparkSession, url_file: str) -> None:
        self.spark = spark
        self.url_file = url_file

    def read(self, **options: object) -> DataFrame:
        return self.spark.read.format("penstock").options(**self._given(options)).load()

    def follow(self, **options: object) -> DataFrame:
        return self.spark.readStream.format("penstock").options(**self._given(options)).load()

    def write(self, frame: DataFrame, **options: object) -> None:
        frame.write.format("penstock").mode("append").options(**self._given(options)).save()

    def copy(self, frame: DataFrame, checkpoint: Path, **options: object) -> list[dict[str, Any]]:
        """Write a stream to a queue until all that is there is written; the answer is what Spark says of each batch."""
        return self.run(frame.writeStream.format("penstock").options(**self._given(options)), checkpoint)

    def run(self, writer: DataStreamWriter, checkpoint: Path) -> list[dict[str, Any]]:
        """Let a stream run until all that is there is read; the answer is what Spark says of each batch."""
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        deadline = time.monotonic() + PATIENCE
        said: list[dict[str, Any]] = []
        while True:
            query = writer.start()
            try:
                assert query.awaitTermination(int(PATIENCE)), "the stream did not end"
                return said + [json.loads(step.json) for step in query.recentProgress]
            except StreamingQueryException as error:
                # Spark gives a Python process ten seconds to start, on however busy a machine.
                if "failed to connect back" not in str(error) or time.monotonic() > deadline:
                    raise
                said += [json.loads(step.json) for step in query.recentProgress]
            finally:
                query.stop()

    def _given(self, options: dict[str, object]) -> dict[str, str]:
        return {"databaseUrlFile": self.url_file, **{name: str(value) for name, value in options.items()}}


@pytest.fixture
def session(spark: SparkSession, url_file: str) -> Session:
    # The active one of this thread, of which a stream that is written asks for its format.
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
    return Session(spark, url_file)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(json.loads(row["value"])["n"] for row in frame.select("value").collect())


def copied(bench: Bench) -> list[int]:
    return sorted(event.data["n"] for event in bench.events("copies"))


@contextmanager
def set_to(spark: SparkSession, conf: dict[str, str]) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in conf}
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def pushing_filters(spark: SparkSession) -> AbstractContextManager[None]:
    return set_to(spark, {"spark.sql.python.filterPushdown.enabled": "true"})


def test_queue_is_read_as_a_table(bench: Bench, session: Session) -> None:
    bench.queue()
    fill(bench, 1000)
    frame = session.read(queue="orders", columns="key,offset", fields="n bigint", minPartitions=3)
    assert frame.columns == ["key", "offset", "n"]
    found = frame.groupBy("key").agg(F.sum("n").alias("total")).collect()
    assert {row["key"]: row["total"] for row in found} == {f"k{i}": sum(range(i, 1000, 5)) for i in range(5)}


@pytest.fixture
def asked(bench: Bench, pg18: Server, pytestconfig: pytest.Config) -> Callable[[], str]:
    """All that PostgreSQL was asked so far, with the values."""
    database = str(conninfo_to_dict(bench.url)["dbname"])
    with pg18.superuser() as conn:
        conn.execute(sql.SQL("ALTER DATABASE {} SET log_statement = 'all'").format(sql.Identifier(database)))
    (log,) = (pytestconfig.stash[ROOT] / "pg18" / "log").glob("*.log")
    return log.read_text


def test_filters_are_pushed_down_to_postgresql(
    bench: Bench, session: Session, asked: Callable[[], str], capfd: pytest.CaptureFixture[str]
) -> None:
    bench.queue("orders", "key")
    fill(bench, 50)
    (partition,) = [event.partition_id for event in bench.events("orders") if event.data == {"n": 3}]
    frame = session.read(queue="orders").where("key = 'k3' and offset >= 4 and value like '%8%'")
    with pushing_filters(session.spark):
        assert numbers(frame) == [28, 38, 48]
        frame.explain()
    plan = capfd.readouterr().out
    assert "k3" not in plan
    assert "offset#" not in plan.split("Filter")[1].split("\n")[0]
    assert "Contains(value" in plan
    assert f"$1 = '{{{partition}}}', $2 = '{{4}}', $3 = '{{10}}'" in asked()
    # Without the setting, Spark filters itself, and the answer is the same.
    assert numbers(frame) == [28, 38, 48]


def test_time_filter_is_pushed_down_in_the_time_zone_of_the_session(
    bench: Bench, session: Session, asked: Callable[[], str], capfd: pytest.CaptureFixture[str]
) -> None:
    bench.queue("orders", "key")
    for first in (0, 50):
        fill(bench, 50, first=first)
    (event,) = [event for event in bench.events("orders") if event.data == {"n": 53}]
    with set_to(session.spark, {"spark.sql.session.timeZone": "America/St_Johns"}):
        there = event.appended_at.astimezone(ZoneInfo("America/St_Johns")).replace(tzinfo=None)
        frame = session.read(queue="orders").where(f"key = 'k3' and timestamp >= timestamp'{there}'")
        with pushing_filters(session.spark):
            assert numbers(frame) == list(range(53, 100, 5))
            frame.explain()
        assert "Filter (" not in capfd.readouterr().out
        assert f"$1 = '{{{event.partition_id}}}', $2 = '{{10}}', $3 = '{{20}}'" in asked()
        # Without the setting, Spark filters itself, and the answer is the same.
        assert numbers(frame) == list(range(53, 100, 5))


def test_query_result_is_read_as_a_table(bench: Bench, session: Session) -> None:
    bench.queue()
    bench.push([(key, {"ts": 1_700_000_000 + n, "amount": n + 0.5}) for n, key in enumerate("aabbb")])
    bench.run(counted(stream()), "hourly")
    rows = session.read(query="hourly").collect()
    assert {row["key"]: (row["n"], float(row["total"]), row["is_open"]) for row in rows} == {
        "a": (2, 2.0, False),
        "b": (3, 10.5, False),
    }
    assert {row["window_start"] for row in rows} == {row["window_start"] for row in rows if row["window_end"]}
    assert session.read(query="hourly", rows="live").count() == 0
    with pytest.raises(PySparkException, match=r"there is no query 'dayly' with windows; there are hourly"):
        session.read(query="dayly")


def test_stream_continues_from_its_checkpoint_in_limited_batches(
    bench: Bench, session: Session, tmp_path: Path
) -> None:
    bench.queue()
    bench.queue("copies", "key")
    fill(bench, 100)
    frame = session.follow(queue="orders", startingOffsets="earliest", maxRecordsPerTrigger=40, group="copier")
    steps = session.copy(frame.select("key", "value"), tmp_path / "checkpoint", queue="copies")
    assert copied(bench) == list(range(100))
    assert [step["numInputRows"] for step in steps if step["numInputRows"]] == [40, 40, 20]
    # What is behind shows in Spark's own progress.
    (source,) = steps[0]["sources"]
    ends = [
        json.loads(place) if isinstance(place, str) else place
        for place in (source["endOffset"], source["latestOffset"])
    ]
    assert [sum(place.values()) for place in ends] == [40, 100]

    fill(bench, 30, first=100)
    session.copy(frame.select("key", "value"), tmp_path / "checkpoint", queue="copies")
    assert copied(bench) == list(range(130))
    assert left_over(bench) == 0


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had been killed after the queue's commit and before its own note of it."""
    notes = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda note: int(note.name))
    for note in (notes[-1], notes[-1].with_name(f".{notes[-1].name}.crc")):
        note.unlink(missing_ok=True)


def test_repeated_batch_is_written_once_and_new_stream_is_another_one(
    bench: Bench, session: Session, tmp_path: Path
) -> None:
    bench.queue()
    bench.queue("copies")
    fill(bench, 30)
    frame = session.follow(queue="orders", startingOffsets="earliest", maxRecordsPerTrigger=10).select("key", "value")
    session.copy(frame, tmp_path / "checkpoint", queue="copies")
    forget_last_commit(tmp_path / "checkpoint")
    session.copy(frame, tmp_path / "checkpoint", queue="copies")
    assert copied(bench) == list(range(30))

    session.copy(frame, tmp_path / "another", queue="copies")
    assert copied(bench) == sorted([*range(30), *range(30)])
    assert left_over(bench) == 0


def test_foreach_batch_writes_once_and_refuses_another_stream_with_its_name(
    bench: Bench, session: Session, tmp_path: Path
) -> None:
    def write(batch: DataFrame, number: int) -> None:
        session.write(batch, queue="copies", txnAppId="nightly", txnVersion=number)

    bench.queue()
    bench.queue("copies")
    fill(bench, 20)
    frame = session.follow(queue="orders", startingOffsets="earliest").select("key", "value")
    for _ in range(2):
        session.run(frame.writeStream.foreachBatch(write), tmp_path / "checkpoint")
        assert copied(bench) == list(range(20))
        forget_last_commit(tmp_path / "checkpoint")

    with pytest.raises(StreamingQueryException, match=r"'nightly' has committed version 0 .*use another writer name"):
        session.run(frame.writeStream.foreachBatch(write), tmp_path / "another")
    assert copied(bench) == list(range(20))
    assert left_over(bench) == 0


def test_write_is_atomic(bench: Bench, session: Session) -> None:
    bench.queue()
    rows = session.spark.range(0, 1000, 1, 4).select(F.col("id").alias("n"), F.expr("'c' || id % 7").alias("customer"))
    session.write(rows, queue="orders", keyColumn="customer")
    events = bench.events("orders")
    assert sorted(event.data["n"] for event in events) == list(range(1000))
    assert all(event.key == event.data["customer"] for event in events)

    bad = session.spark.range(0, 100, 1, 4).select(F.expr("IF(id = 77, '{', '1')").alias("value"))
    with pytest.raises(PySparkException, match="data: "):
        session.write(bad, queue="orders")
    assert len(bench.events("orders")) == 1000
    assert left_over(bench) == 0


def test_errors_reach_the_user_of_spark(bench: Bench, session: Session, tmp_path: Path) -> None:
    bench.queue(partitions=1)
    bench.queue("copies")
    with pytest.raises(PySparkException, match="option 'startingofsets' is not known; did you mean 'startingOffsets'"):
        session.read(queue="orders", startingOfsets="latest")
    with pytest.raises(PySparkException, match="there is no queue 'odrers'"):
        session.read(queue="odrers").count()

    fill(bench, 20)
    frame = session.follow(queue="orders", startingOffsets="earliest").select("key", "value")
    session.copy(frame, tmp_path / "checkpoint", queue="copies")
    fill(bench, 20, first=20)
    roll(bench.url)
    forget(bench.url)
    with pytest.raises(StreamingQueryException, match=r"20 events of queue 'orders' were deleted .* failOnDataLoss"):
        session.copy(frame, tmp_path / "checkpoint", queue="copies")


def test_connection_string_is_never_shown(
    bench: Bench, session: Session, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.queue()
    bench.queue("copies")
    fill(bench, 10)
    file = tmp_path / "with-password"
    file.write_text(make_conninfo(bench.url, password="hidden-from-view"))  # noqa: S106 - the server asks for none
    session.url_file = str(file)
    frame = session.read(queue="orders")
    frame.explain("formatted")
    frame.explain(True)
    steps = session.copy(session.follow(queue="orders", startingOffsets="earliest"), tmp_path / "c", queue="copies")
    shown: list[Any] = [frame, frame.schema.json(), steps]
    file.write_text("postgresql://nobody:hidden-from-view@127.0.0.1:1/nothing?connect_timeout=1")
    with pytest.raises(PySparkException) as refused:
        session.read(queue="orders", columns="nothing").count()
    shown += [refused.value, *capfd.readouterr()]
    kept = [path.read_text(errors="replace") for path in (tmp_path / "c").rglob("*") if path.is_file()]
    assert copied(bench) == list(range(10))
    assert not [each for each in (*shown, *kept) if "hidden-from-view" in str(each)]
