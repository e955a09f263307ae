"""Decimal arithmetic in Spark equals Python's Decimal, and decimals as text equal their JSON."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, ArithmeticException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import Stream, agg
from penstock.engine.compile import exact_decimals
from penstock.engine.spark.spark_session import new_session
from penstock.engine.worker.json_columns import DEFAULT_NUMBER
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, stream

#: More precision than any result needs.
WIDE = Context(prec=200, rounding=ROUND_HALF_UP)
HOUR: dict[str, Any] = {"seconds": 3600, "event_time": "ts", "idle_flush_seconds": NEVER_IDLE}


def r(value: Decimal) -> Decimal:
    """Round to 18 decimals."""
    return value.quantize(Decimal(1).scaleb(-18), context=WIDE)


def random_number(chance: random.Random, whole: int, after: int) -> Decimal:
    """A number with up to ``whole`` digits before the point and up to ``after`` decimals."""
    after = chance.randint(0, after)
    return Decimal(chance.randrange(-(10 ** (whole + after)), 10 ** (whole + after))).scaleb(-after, context=WIDE)


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return new_session(spark)


def frame_of(session: SparkSession, **columns: list[Decimal]) -> DataFrame:
    return session.createDataFrame(
        pa.table({name: pa.array(values, DEFAULT_NUMBER) for name, values in columns.items()})
    )


FORMULAS: dict[str, Callable[[Decimal, Decimal, Decimal], Decimal]] = {
    "a * b": lambda a, b, c: r(a * b),
    "a + b": lambda a, b, c: a + b,
    "a - b": lambda a, b, c: a - b,
    "a / c": lambda a, b, c: r(a / c),
    "a * c * c": lambda a, b, c: r(r(a * c) * c),
    "(a + b) * c - 2 * a + 1": lambda a, b, c: r((a + b) * c) - 2 * a + 1,
    "coalesce(a * c, b) * 1.21": lambda a, b, c: r(r(a * c) * Decimal("1.21")),
    "CASE WHEN a * c > b THEN a * c ELSE b END": lambda a, b, c: max(r(a * c), b),
    "aggregate(array(a, b), c, (sum, x) -> sum + x * c)": lambda a, b, c: c + r(a * c) + r(b * c),
}


def test_arithmetic_rounds_to_18_decimals_like_python(session: SparkSession) -> None:
    chance = random.Random(1)
    rows = [
        (random_number(chance, 9, 18), random_number(chance, 9, 18), random_number(chance, 1, 18) or Decimal(7))
        for _ in range(300)
    ]
    a, b, c = (list(column) for column in zip(*rows, strict=True))
    frame = frame_of(session, a=a, b=b, c=c)
    found = frame.select(*[exact_decimals.column(session, text).alias(f"f{i}") for i, text in enumerate(FORMULAS)])
    assert {field.dataType.simpleString() for field in found.schema} == {"decimal(38,18)"}
    with localcontext(WIDE):
        for row, numbers in zip(found.collect(), rows, strict=True):
            assert list(row) == [formula(*numbers) for formula in FORMULAS.values()], numbers


def test_spark_columns_are_exact_and_keep_their_names(session: SparkSession) -> None:
    frame = frame_of(session, price=[Decimal("1.2345678")], quantity=[Decimal(3)])
    made = exact_decimals.select(frame, ["price"], F.col("price") * F.col("quantity") + 1)

    assert made.collect()[0][1] == Decimal("4.7037034")
    assert made.columns == frame.select("price", F.col("price") * F.col("quantity") + 1).columns
    added = F.aggregate(F.array("price", "price"), F.lit(0).cast("decimal(38,18)"), lambda s, x: s + x * frame.quantity)
    assert frame.select(exact_decimals.column(session, added)).collect()[0][0] == Decimal("7.4074068")


def test_queries_are_exact_in_every_clause_and_keep_their_column_names(session: SparkSession) -> None:
    frame_of(session, a=[Decimal("1.2345678")], b=[Decimal(3)]).createOrReplaceTempView("t")
    query = """
        SELECT round(a * b, 9), a * (WITH m AS (SELECT b * 1 AS b FROM t) SELECT max(b) FROM m) AS sub,
               s.p + 1 AS inner, transform(array(a), x -> x * b)[0] AS each
        FROM t JOIN (SELECT a AS k, a * b AS p FROM t) s ON s.k = t.a AND s.p * 1 = a * b WHERE a * b > 3.7037033
    """
    made = exact_decimals.run_query(session, query)
    product = Decimal("3.7037034")
    assert [list(row) for row in made.collect()] == [[product, product, product + 1, product]]
    assert made.columns == session.sql(query).columns
    inline = "SELECT inline(array(struct(a * 2 AS c, b))) FROM t"
    assert exact_decimals.run_query(session, inline).columns == session.sql(inline).columns


def test_other_types_compute_like_in_spark(session: SparkSession) -> None:
    query = (
        "SELECT 7 * 6, 1 / 4, 2.5D * 2, 1.5 * 2.5, '3' * 2, null + 1, date'2026-01-31' + 1, interval 1 day * 2, "
        "timestamp'2026-01-01 00:00:00' + interval 1 hour, date'2026-01-02' - date'2026-01-01', -5 - 3"
    )
    expected = session.sql(query)
    made = exact_decimals.run_query(session, query)
    assert made.collect() == expected.collect()
    assert [kind for _, kind in made.dtypes] == [kind for _, kind in expected.dtypes]


def test_overflow_is_an_error(session: SparkSession) -> None:
    frame = frame_of(session, a=[Decimal(10) ** 15], zero=[Decimal(0)])
    with pytest.raises(ArithmeticException, match="NUMERIC_VALUE_OUT_OF_RANGE"):
        frame.select(exact_decimals.column(session, "a * a")).collect()
    with pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO"):
        frame.select(exact_decimals.column(session, "a / zero")).collect()
    with pytest.raises(ParseException):
        exact_decimals.column(session, "a * ")
    with pytest.raises(AnalysisException, match="nobody"):
        frame.select(exact_decimals.column(session, "a * nobody"))


def test_a_decimal_as_text_has_no_trailing_zeros(session: SparkSession) -> None:
    chance = random.Random(2)
    numbers = [random_number(chance, chance.randint(1, 20), 18) for _ in range(200)]
    numbers += [Decimal(text) for text in ("0", "-0.0", "5", "500", "0.10", "-1e-18", "99999999999999999999")]
    texts = ("cast(n AS string)", "n || ''", "concat(n)", "concat_ws('', n)", "upper(n)", "replace(n, 'x', 'y')")
    made = frame_of(session, n=numbers).select(*[exact_decimals.column(session, text) for text in texts])
    for number, row in zip(numbers, made.collect(), strict=True):
        assert set(row) == {f"{number.normalize(WIDE):f}" if number else "0"}, number


# Streams


@pytest.fixture
def orders(bench: Bench) -> Bench:
    with psycopg.connect(bench.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE rates (currency text, rate numeric)")
        conn.execute("INSERT INTO rates VALUES ('EUR', 1.123456789012345678), ('JPY', 1 / 3.0), ('XXX', NULL)")
    bench.queue(partitions=2)
    chance = random.Random(3)
    bench.push(
        (
            "k",
            {
                "ts": T0 + i,
                "price": random_number(chance, 4, 7),
                "quantity": chance.randint(1, 50),
                "currency": "EUR",
            },
        )
        for i in range(20)
    )
    return bench


def total(bench: Bench, rate: str = "1") -> Decimal:
    with localcontext(WIDE):
        return sum((r(e.data["price"] * e.data["quantity"] * Decimal(rate)) for e in bench.seen()), Decimal(0))


def test_products_in_aggregates_keys_and_filters_are_exact(orders: Bench) -> None:
    made = stream().filter("price * quantity > -1e9").key_by("quantity * 0.5 * 2").window_tumbling(**HOUR)
    orders.run(
        made.aggregate({"text": "sum(price * quantity)", "column": agg.sum(F.col("price") * F.col("quantity"))}),
        max_events_per_cycle=7,
    )
    rows = orders.rows()
    assert {row["key"] for row in rows} == {str(event.data["quantity"]) for event in orders.seen()}
    assert sum(row["text"] for row in rows) == sum(row["column"] for row in rows) == total(orders)


def test_products_with_a_reference_table_are_exact_and_its_types_do_not_depend_on_its_rows(orders: Bench) -> None:
    joined = stream().sql(
        "SELECT ts, price * quantity * fx.rate AS amount FROM stream JOIN fx USING (currency)", fx="rates"
    )
    orders.run(joined.window_tumbling(**HOUR).aggregate({"total": "sum(amount)"}))
    assert orders.by_key("total") == {"k": total(orders, "1.123456789012345678")}

    with psycopg.connect(orders.url, autocommit=True) as conn:
        conn.execute("UPDATE rates SET rate = NULL")
    orders.run(joined.window_tumbling(**HOUR).aggregate({"total": "sum(amount)"}), "later")
    assert orders.by_key("total", "later") == {"k": None}


def test_streaming_sql_is_exact(orders: Bench) -> None:
    orders.push([("k", {"ts": T0, "price": 1, "quantity": 1, "currency": "EUR"})])
    statement = """
        INSERT INTO out
        SELECT sum(price * quantity) AS total, sum(price * quantity) / count(*) AS mean, avg(price * quantity) AS avg
        FROM orders GROUP BY window(ts, '1 hour')
    """
    orders.run(Stream.sql(statement))
    (row,) = orders.rows()
    assert row["total"] == total(orders)
    assert row["mean"] == row["avg"] == total(orders) / 21, "to the 28 digits of Python's Decimal"


def test_decimals_in_output_keys_and_texts_have_no_trailing_zeros(bench: Bench) -> None:
    bench.queue()
    bench.push([("k", {"i": 5, "price": Decimal("2.50")})])
    bench.run(stream().to("out", partition="concat('p', i, '-', price)"))
    bench.run(stream().map("concat_ws('/', i, price) AS text, i * price AS value").to("texts"), "texts")

    assert [event.key for event in bench.events("out")] == ["p5-2.5"]
    assert bench.emitted("texts") == [{"text": "5/2.5", "value": Decimal("12.5")}]
    assert stream().map("concat('p', i) AS text").to("out").preview(1, settings=bench.settings) == [
        {"key": "k", "text": "p5"}
    ]


@pytest.mark.long
def test_a_product_that_overflows_is_a_dead_letter(bench: Bench) -> None:
    bench.queue()
    bench.push(("k", {"ts": T0, "price": price, "quantity": 3}) for price in (1, 10**19 * 9))
    bench.run(stream().window_tumbling(**HOUR).aggregate({"total": "sum(price * quantity)"}))

    assert bench.by_key("total") == {"k": 3}
    (letter,) = bench.letters()
    assert "NUMERIC_VALUE_OUT_OF_RANGE" in letter.error
