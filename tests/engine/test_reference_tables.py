"""Reference tables that streams are joined with: refreshed in time, with the types of the table."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock import Stream
from penstock.core.errors import InvalidRequest
from penstock.engine.driver.loop import SMALL_EVENTS
from penstock.engine.reference_tables import ReferenceTables, fetch_table
from penstock.engine.worker.read_config import ReadConfig
from penstock.stream.steps import ReferenceTable
from tests.conditions import eventually
from tests.engine.pipelines import T0, Bench


def test_an_inner_join_with_an_empty_table_emits_nothing(bench: Bench) -> None:
    bench.queue()
    with psycopg.connect(bench.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE rates (currency text, rate numeric)")
    bench.push([("k", {"currency": "EUR", "amount": n}) for n in range(5)])
    made = Stream.from_("orders").enrich("SELECT currency, rate FROM rates", on="currency", how="inner").to("out")
    query = bench.run(made)

    assert query.status.events_in == 5
    assert bench.emitted("out") == []
    assert bench.letters() == []


def test_reduce_adds_late_events_to_the_window(bench: Bench) -> None:
    bench.queue(partitions=1)
    t0 = 1_700_000_000_000
    bench.push([("k", {"ts": t0 + s * 1000, "n": n}) for n, s in enumerate((1, 12, 2))])
    made = Stream.from_("orders").window_tumbling(seconds=10, event_time="ts", late="include", idle_flush_seconds=3600)
    bench.run(made.reduce(lambda seen, event: [*seen, event["n"]], []).to("out"), flush=True)

    values = sorted(row["value"] for row in bench.emitted("out"))
    assert [0, 2] in values


def test_reduce_gets_exploded_events_in_order_with_integers(bench: Bench) -> None:
    bench.queue(partitions=1)
    bench.push([("k", {"ts": 1_700_000_000 + n, "items": [10 * n + 9, 10 * n + 1]}) for n in range(3)])
    exploded = Stream.from_("orders").map("ts, items").flat_map("transform(items, x -> struct(x * 2 AS twice))")
    made = exploded.window_tumbling(seconds=3600).reduce(lambda seen, event: [*seen, event["twice"]], [])
    bench.run(made.to("out"))

    assert json.dumps(bench.emitted("out")[0]["value"]) == "[18, 2, 38, 22, 58, 42]"


def test_a_notification_refreshes_all_tables_of_its_channel(bench: Bench) -> None:
    """DataFrames included, in small and in large cycles."""
    bench.queue(partitions=1)
    asked = itertools.count()
    rarely: dict[str, Any] = {"on": "currency", "refresh_seconds": 86_400, "notify": "changed"}
    made = Stream.from_("orders").enrich("rates", **rarely).enrich("names", **rarely)
    made = made.enrich(
        lambda spark: spark.createDataFrame([("EUR", next(asked))], "currency string, asked int"), **rarely
    )
    seen: list[tuple[Any, ...]] = []
    with psycopg.connect(bench.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE rates (currency text, rate int)")
        conn.execute("CREATE TABLE names (currency text, name text)")
        conn.execute("INSERT INTO rates VALUES ('EUR', 1)")
        conn.execute("INSERT INTO names VALUES ('EUR', 'a')")
        with bench.running(made.to("out")) as query:

            def push(events: int) -> None:
                before = query.status.events_in
                bench.push([("k", {"currency": "EUR"})] * events)
                eventually(lambda: query.status.events_in == before + events, "the events")
                seen.append(tuple(bench.emitted("out")[-1][field] for field in ("rate", "name", "asked")))

            push(1)
            conn.execute("UPDATE rates SET rate = 2")
            conn.execute("UPDATE names SET name = 'b'")
            push(1)
            conn.execute("NOTIFY changed")
            push(1)
            conn.execute("UPDATE rates SET rate = 3")
            conn.execute("NOTIFY changed")
            push(SMALL_EVENTS + 1)
            push(1)

    first = seen[0][2]
    assert seen[:3] == [(1, "a", first), (1, "a", first), (2, "b", seen[2][2])]
    assert [row[:2] for row in seen[3:]] == [(3, "b"), (3, "b")]
    assert first < seen[2][2] < seen[3][2] <= seen[4][2]


def test_tables_with_one_name_are_distinct_and_a_lost_listener_refreshes_all(bench: Bench, spark: SparkSession) -> None:
    tables = ReferenceTables(ReadConfig(bench.url, 0, "q", pa.schema([]), {}, None, 0, (), False))
    one, other = (ReferenceTable(query=f"SELECT {n} AS n, now() AS at", notify="changed") for n in (1, 2))

    def rows(table: ReferenceTable) -> Any:
        return tables.frame(spark, "fx", table).toArrow().to_pylist()[0]

    first = rows(one)
    assert (first["n"], rows(other)["n"]) == (1, 2)
    assert rows(one) == first
    assert not tables.forget_stale()
    # Notifications may have been missed while the connection was lost.
    bench.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock listener'")
    eventually(tables.forget_stale, "the end of the connection")
    assert rows(one)["at"] > first["at"]
    assert not tables.forget_stale()
    bench.ask("SELECT pg_notify('changed', '')")
    eventually(tables.forget_stale, "the notification")
    tables.close()


def test_columns_have_the_types_of_the_table_for_any_values(bench: Bench) -> None:
    with psycopg.connect(bench.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (k text, n numeric, i int, f float8, b boolean, at timestamptz, d date)")
        conn.execute("INSERT INTO t (k) VALUES ('empty')")
        empty = fetch_table(conn, "SELECT * FROM t")
        conn.execute("INSERT INTO t VALUES ('full', 1 / 3.0, 1, 0.5, true, now(), now())")
        full = fetch_table(conn, "SELECT * FROM t")
        assert full.schema == empty.schema
        assert full.column("n").to_pylist() == [None, Decimal("0.333333333333333333")]
        with pytest.raises(InvalidRequest, match="column 'n' of a reference table holds a value that is not a number"):
            fetch_table(conn, "SELECT 'NaN'::numeric AS n")


def test_a_table_that_cannot_be_read_is_an_invalid_request(bench: Bench) -> None:
    bench.queue(partitions=1)
    bench.push([("k", {"currency": "EUR"})])
    with pytest.raises(InvalidRequest, match=r"(?s)'prices' cannot be read: relation \"no_such\" does not exist"):
        bench.run(Stream.from_("orders").enrich("no_such", on="currency", name="prices").to("out"))


def test_preview_and_explain_commit_nothing(bench: Bench) -> None:
    bench.queue(partitions=1)
    bench.push([("k", {"ts": 1_700_000_000 + n, "amount": n}) for n in range(5)])
    made = Stream.from_("orders").filter("amount > 1").window_tumbling(seconds=3600, event_time="ts")
    totals = made.aggregate({"total": "sum(amount)", "n": "count(*)"}).to("out")

    assert [(row["key"], row["total"], row["n"]) for row in totals.preview(settings=bench.settings)] == [("k", 9, 3)]
    assert [row["n"] for row in totals.preview(2, settings=bench.settings)] == [2]
    plan = totals.explain(settings=bench.settings)
    assert "filter" in plan
    assert "HashAggregate" in plan.partition("Spark's plan:")[2]
    assert bench.ask("SELECT count(*) FROM penstock.queries") == 0
    assert bench.ask("SELECT count(*) FROM penstock.groups") == 0


@pytest.fixture
def customers(bench: Bench) -> Bench:
    """Orders, and a table of customers to look them up in."""
    bench.queue(partitions=1)
    bench.push([("k", {"customer_id": f"c{n % 3}", "amount": n, "ts": T0 + n}) for n in range(6)])
    with psycopg.connect(bench.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE customers (customer_id text, segment text, weight numeric)")
        conn.execute("INSERT INTO customers VALUES ('c0', 'gold', 0.5), ('c1', 'blue', 2)")
    return bench


@pytest.mark.parametrize(
    "joined",
    [
        Stream.from_("orders").enrich("customers", on="customer_id"),
        Stream.from_("orders").sql("SELECT * FROM stream LEFT JOIN c USING (customer_id)", c="customers"),
        Stream.from_("orders").sql(
            "SELECT stream.*, c.segment, c.weight FROM stream LEFT JOIN c ON c.customer_id = stream.customer_id",
            c="customers",
        ),
        Stream.from_("orders").enrich("customers", on="customer_id").filter(lambda event: True),
    ],
)
def test_keys_and_arguments_can_be_columns_of_the_table(customers: Bench, joined: Stream) -> None:
    made = joined.key_by("segment").window_tumbling(seconds=3600)
    customers.run(made.aggregate({"n": "count(*)", "weights": "sum(weight)", "last": "last(segment)"}))

    rows = {row["key"]: (row["n"], row["weights"], row["last"]) for row in customers.rows()}
    assert rows == {"gold": (2, 1, "gold"), "blue": (2, 4, "blue"), None: (2, None, None)}


def test_a_column_of_the_table_replaces_the_field_of_the_same_name(customers: Bench) -> None:
    customers.push([("k", {"customer_id": "c1", "amount": 1, "ts": T0, "segment": "of the event", "Weight": 7})])
    enriched = Stream.from_("orders").filter("segment IS NOT NULL").enrich("customers", on="customer_id")
    customers.run(enriched.to("out"))
    assert customers.emitted("out")[0]["segment"] == "blue"
    customers.run(enriched.filter(lambda event: event["segment"] == "blue").to("python"), "python")
    assert customers.emitted("python")[0]["segment"] == "blue"
    by_segment = enriched.key_by("segment").window_tumbling(seconds=3600).aggregate({"w": "sum(weight)"})
    customers.run(by_segment, "windows")
    assert customers.by_key("w", "windows") == {"blue": 2}


def test_lookups_follow_each_other(customers: Bench) -> None:
    with psycopg.connect(customers.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE segments AS SELECT 'gold' AS segment, 10 AS discount")
    chained = Stream.from_("orders").enrich("customers", on="customer_id").enrich("segments", on="segment", how="inner")
    customers.run(chained.key_by("discount").window_tumbling(seconds=3600).aggregate({"n": "count(*)"}))
    assert customers.by_key("n") == {"10": 2}
