"""Statements, compiled without Spark."""

from __future__ import annotations

import pytest

from penstock.core.errors import InvalidSql
from penstock.stream.definition import Definition
from penstock.stream.fingerprint import describe
from penstock.stream.statements.application import Application
from penstock.stream.statements.statement_parser import parse_application
from penstock.stream.windows import CalendarWindow, SessionWindow, SlidingWindow, TumblingWindow

GROUPED = "INSERT INTO out SELECT who, window(ts, '5 seconds') AS w, {what} FROM orders GROUP BY who, w"


def read(text: str) -> Application:
    return parse_application(Definition, text, "p.sql")


def one(text: str) -> Definition:
    (query,) = read(text).queries.values()
    return query.stream


def test_statement_equals_the_stream_of_the_builder() -> None:
    made = one(
        "INSERT INTO orders_5s SELECT customer, window(event_time, '5 seconds') AS w, count(*) AS n, "
        "sum(amount) AS total FROM orders GROUP BY customer, window(event_time, '5 seconds')"
    )
    built = (
        Definition.from_("orders")
        .key_by("customer")
        .window_tumbling(seconds=5, event_time="event_time")
        .aggregate({"customer": "max(customer)", "n": "count(*)", "total": "sum(amount)"})
        .select(
            {
                "customer": "customer",
                "w": "struct(window_start AS start, window_end AS end)",
                "n": "n",
                "total": "total",
            }
        )
        .to("orders_5s")
    )
    assert describe(made) == describe(built)


def test_sql_of_the_class_is_a_statement_and_of_a_stream_a_step() -> None:
    made = Definition.sql("INSERT INTO out SELECT a, b FROM orders WHERE a > 1")
    assert (made.sources, made.sink) == (("orders",), "out")
    assert (
        describe(Definition.from_("orders").sql("SELECT a FROM stream").to("out"))[1]
        == "sql sql-1: SELECT a FROM stream"
    )


@pytest.mark.parametrize(
    ("window", "expected", "time"),
    [
        ("window(ts, '5 seconds')", TumblingWindow(5_000_000), "ts"),
        ("window(ts, '1 minute 30 seconds')", TumblingWindow(90_000_000), "ts"),
        ("window(ts, INTERVAL '5' SECOND)", TumblingWindow(5_000_000), "ts"),
        ("window(o.meta.at, '500 milliseconds')", TumblingWindow(500_000), "meta.at"),
        ("window(ts, '10 seconds', '5 seconds')", SlidingWindow(10_000_000, 5_000_000), "ts"),
        ("session_window(ts, '5 minutes')", SessionWindow(300_000_000), "ts"),
        ("date_trunc('day', ts)", CalendarWindow("day", "UTC"), "ts"),
        ("date_trunc('week', from_utc_timestamp(ts, 'Europe/Rome'))", CalendarWindow("week", "Europe/Rome"), "ts"),
        ("date_trunc('month', ts)", CalendarWindow("month", "UTC"), "ts"),
        ("calendar_window(ts, 'quarter')", CalendarWindow("quarter", "UTC"), "ts"),
        ("calendar_window(ts, 'month', 'Europe/Rome', 17)", CalendarWindow("month", "Europe/Rome", 17), "ts"),
        ("calendar_window(ts, 'year', 'Asia/Tokyo', 1, 4)", CalendarWindow("year", "Asia/Tokyo", 1, 4), "ts"),
        ("window(_time, '1 hour')", TumblingWindow(3_600_000_000), True),
        ("window(_appended_at, '1 hour')", TumblingWindow(3_600_000_000), None),
    ],
)
def test_window_and_event_time_of_group_by(window: str, expected: object, time: object) -> None:
    made = one(f"INSERT INTO out SELECT count(*) AS n FROM orders o GROUP BY {window}")  # noqa: S608
    assert made.windows == (expected,)
    assert made.time.event_time == time
    assert made.key == "''"


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("count(amount)", "count(amount)"),
        ("count(DISTINCT item)", "count_distinct(item)"),
        (
            "count(DISTINCT item, who)",
            "count_distinct(CASE WHEN (item) IS NOT NULL AND (who) IS NOT NULL THEN to_json(struct(item, who)) END)",
        ),
        ("count(item, who)", "count(CASE WHEN (item) IS NOT NULL AND (who) IS NOT NULL THEN 1 END)"),
        ("approx_count_distinct(item, 0.05)", "approx_distinct(item)"),
        ("count(*) FILTER (WHERE amount > 5)", "count_if(amount > 5)"),
        ("sum(amount) FILTER (WHERE who = 'a')", "sum(CASE WHEN who = 'a' THEN amount END)"),
        ("avg(amount * 2)", "avg(amount * 2)"),
        ("stddev_samp(amount)", "stddev(amount)"),
        ("first(item)", "first(item)"),
        ("approx_count_distinct(item)", "approx_distinct(item)"),
        ("percentile_approx(amount, 0.95)", "percentile(amount, 0.95)"),
        ("percentile(amount, 0.5)", "percentile(amount, 0.5)"),
        ("top_k(item, 3)", "top_k(item, 3)"),
    ],
)
def test_aggregate_functions(what: str, expected: str) -> None:
    made = one(GROUPED.format(what=f"{what} AS it"))
    assert made.aggregates["it"].describe() == expected


def test_equal_aggregates_are_computed_once() -> None:
    made = one(
        "INSERT INTO out SELECT o.who, sum(amount) / count(*) AS mean, window.start AS since FROM orders AS o "
        "GROUP BY who, window(ts, '5 seconds') HAVING count(*) > 2 AND mean > 1"
    )
    assert made.outputs == {"who": "who", "mean": "sum_amount / count", "since": "window_start"}
    assert made.condition == "count > 2 AND (sum_amount / count) > 1"
    assert set(made.aggregates) == {"who", "sum_amount", "count"}


def test_views_subqueries_and_ctes_become_steps() -> None:
    made = one(
        "CREATE VIEW big AS SELECT amount * 2 AS twice, at AS happened FROM orders WHERE amount > 1;"
        "INSERT INTO out WITH b AS (SELECT * FROM (SELECT twice, happened FROM big) x WHERE twice < 9) "
        "SELECT sum(twice) AS total FROM b GROUP BY window(happened, '1 hour')"
    )
    assert [step.name for step in made.steps] == ["filter-1", "map-1", "map-2", "filter-2"]
    assert made.time.event_time == "at"


def test_file_with_all_kinds_of_statements() -> None:
    found = read(
        """
        -- Orders come in here.
        CREATE QUEUE IF NOT EXISTS `web-orders` (amount decimal(18,2), tags array<string>, *)
            WITH (partitions = 4, retention_seconds = 86400, max_depth_events = NULL);
        CREATE REFERENCE customers FROM 'crm.customers' WITH (refresh_seconds = 5, notify = 'customers');
        CREATE REFERENCE rates AS SELECT currency, rate FROM fx WHERE day = current_date;
        INSERT INTO rich SELECT o.amount, c.country FROM `web-orders` o LEFT JOIN customers c ON c.id = o.who;
        CREATE QUERY totals WITH (late = 'drop', grace_seconds = 1.5, interval_seconds = 0) AS
            SELECT country, window(_time, '1 hour') AS w, sum(amount) AS total FROM rich GROUP BY country, w;
        CREATE SINK archive FROM rich TO 'file:rich.jsonl' WITH (every = 60);
        """
    )
    queue = found.queues["web-orders"]
    assert queue.schema == {"amount": "decimal(18,2)", "tags": "array<string>"}
    assert (queue.partitions, queue.options) == (4, {"retention_seconds": 86400, "max_depth_events": None})
    assert found.references["customers"].notify == "customers"
    assert (found.references["rates"].query or "").startswith("SELECT currency")
    assert list(found.queries) == ["rich", "totals"]
    assert found.queries["totals"].options == {"interval_seconds": 0}
    assert found.queries["totals"].stream.time.grace_us == 1_500_000
    assert (found.sinks["archive"].queue, found.sinks["archive"].options) == ("rich", {"every": 60})


def test_queries_are_ordered_by_the_queues_they_read() -> None:
    found = read(
        "INSERT INTO c SELECT x FROM b; INSERT INTO b SELECT x FROM a; INSERT INTO d SELECT x FROM e;"
        "INSERT INTO e SELECT x FROM d; INSERT INTO f SELECT x FROM c"
    )
    assert [query.name for query in found.queries_in_order()] == ["b", "c", "f", "d", "e"]


def test_star_except() -> None:
    made = one(
        "CREATE QUEUE orders (a int, B int, c int); INSERT INTO out SELECT o.* EXCEPT (b), b + 1 AS b FROM orders o"
    )
    assert describe(made)[-2] == "map map-1: `a` AS `a`, `c` AS `c`, B + 1 AS `b`"


def test_alias_is_replaced_by_its_expression_unless_a_field_has_the_name() -> None:
    declared = "CREATE QUEUE orders (price int, qty int, Twice int, at string);"
    named = "INSERT INTO out SELECT price * qty AS total, TOTAL * 2 AS twice, twice + 1 AS more FROM orders"
    made = one(declared + named)
    assert describe(made)[-2].endswith("price * qty AS `total`, (price * qty) * 2 AS `twice`, Twice + 1 AS `more`")
    # Of a queue that declares nothing: a field that the expression itself reads is there.
    made = one("INSERT INTO out SELECT upper(name) AS name, length(name) AS n, o.n AS was FROM orders o")
    assert describe(made)[-2].endswith("UPPER(name) AS `name`, LENGTH(name) AS `n`, n AS `was`")


@pytest.mark.parametrize(
    ("select", "group", "key"),
    [
        ("lower(who) AS who", "who", "who"),
        ("lower(who) AS who", "lower(who)", "LOWER(who)"),
        ("lower(who) AS who", "1", "LOWER(who)"),
        ("lower(who) AS Name", "name", "LOWER(who)"),
        ("lower(who) AS ts2", "ts2", "LOWER(who)"),
    ],
)
def test_field_comes_before_alias_in_group_by(select: str, group: str, key: str) -> None:
    made = one(f"INSERT INTO out SELECT {select}, count(*) AS n FROM orders GROUP BY {group}, window(ts, '1 hour')")  # noqa: S608
    assert made.key == key
    declared = "CREATE QUEUE orders (who string, ts2 string, ts string);"
    again = "INSERT INTO out SELECT who AS ts2, count(*) AS n FROM orders GROUP BY who, ts2, window(ts, '1 hour')"
    assert one(declared + again).key == ("who", "ts2")


def test_null_and_empty_key_are_different_groups_of_one_expression() -> None:
    assert one(GROUPED.format(what="count(*) AS n")).distinguishes_null_key
    for group in ("who, item, w", "_key, w", "w"):
        text = f"INSERT INTO out SELECT window(ts, '1 hour') AS w, count(*) AS n FROM orders GROUP BY {group}"  # noqa: S608
        assert not one(text).distinguishes_null_key


def test_join_returns_a_column_that_is_computed_under_its_own_name() -> None:
    made = one(
        "CREATE REFERENCE products FROM 'shop.products'; INSERT INTO out SELECT upper(category) AS category, "
        "sum(amount) AS amount FROM orders o JOIN products p ON p.id = o.product "
        "GROUP BY upper(category), window(ts, '1 hour')"
    )
    assert "SELECT category AS `category`, amount AS `amount`, ts AS `ts` FROM stream" in describe(made)[1]


def test_union_all_by_name() -> None:
    declared = "CREATE QUEUE a (x int, y string); CREATE QUEUE b (y string, x INTEGER);"
    both = "INSERT INTO out SELECT x FROM (SELECT * FROM a UNION ALL BY NAME SELECT * FROM b) u"
    made = one(declared + both)
    assert (made.sources, made.schema) == (("a", "b"), {"x": "int", "y": "string"})


def test_create_or_replace_view() -> None:
    made = one(
        "CREATE VIEW v AS SELECT * FROM a; CREATE OR REPLACE VIEW v AS SELECT * FROM b; INSERT INTO x SELECT * FROM v"
    )
    assert made.sources == ("b",)


def test_interval_join() -> None:
    made = one(
        "INSERT INTO out SELECT a.id, b.price FROM auctions a LEFT JOIN bids b "
        "ON a.id = b.auction AND b.ts >= a.ts - INTERVAL '5 seconds' AND b.ts < a.ts + INTERVAL 1 HOUR"
    )
    assert made.joined is not None
    join = made.joined
    assert (join.how, join.left_on, join.right_on) == ("left", ("id",), ("auction",))
    assert (join.before_us, join.after_us) == (5_000_000, 3_599_999_999)
    assert (join.left_time, join.right_time) == ("ts", "ts")


REFUSED = [
    ("SELECT a FROM o", 1, "name the queue of its results"),
    ("DELETE FROM x", 1, "a statement is CREATE QUEUE"),
    ("SHOW MATERIALIZED VIEWS", 1, 'run it by itself, `penstock sql "SHOW ..."`'),
    ("EXPLAIN SELECT a FROM o", 1, 'run it by itself, `penstock sql "EXPLAIN ..."`'),
    ("DROP MATERIALIZED VIEW v", 1, 'run it by itself, `penstock sql "DROP ..."`'),
    ("REFRESH MATERIALIZED VIEW v", 1, "leave out REFRESH"),
    ("ALTER MATERIALIZED VIEW v RENAME TO w", 1, "a changed SELECT needs --rebuild"),
    ("CREATE TABLE x (a int)", 8, "CREATE REFERENCE"),
    ("INSERT INTO x SELECT a FRM o", 28, "cannot be read"),
    ("INSERT INTO x SELECT a FROM", 24, "Expected table name"),
    ("INSERT INTO x VALUES (1)", 23, "a stream is a SELECT"),
    ("INSERT INTO x SELECT a FROM x", 1, "would never end"),
    ("INSERT INTO x SELECT a FROM o ORDER BY a", 40, "leave it out"),
    ("INSERT INTO x SELECT a FROM o LIMIT 5", 37, "penstock_live"),
    ("INSERT INTO x SELECT DISTINCT a FROM o", 31, "group by a window"),
    ("INSERT INTO x SELECT sum(a) OVER (PARTITION BY b) AS s FROM o", 22, "group by a window"),
    ("INSERT INTO x SELECT a + 1 FROM o", 22, "AS name"),
    ("INSERT INTO x SELECT *, a + 1 AS b FROM o", 22, "declare them"),
    ("INSERT INTO x SELECT a FROM o WHERE a IN (SELECT b FROM c)", 50, "join the table"),
    ("INSERT INTO x SELECT a FROM o UNION SELECT a FROM p", 22, "UNION ALL"),
    ("INSERT INTO x SELECT a, count(*) AS n FROM o GROUP BY a", 55, "add window("),
    ("INSERT INTO x SELECT b, count(*) AS n FROM o GROUP BY window(t, '1 hour')", 22, "add it to GROUP BY"),
    ("INSERT INTO x SELECT count(*) AS n FROM o GROUP BY window(t, '5 parsecs')", 62, "no length of time"),
    ("INSERT INTO x SELECT count(*) AS n FROM o GROUP BY window(upper(t), '1 hour')", 59, "as the events have it"),
    ("INSERT INTO x SELECT collect_list(a) AS l FROM o GROUP BY window(t, '1 hour')", 22, "there is no aggregate"),
    ("INSERT INTO x SELECT sqrt(sum(a)) AS s FROM o GROUP BY window(t, '1 hour')", 22, "a second stream"),
    (
        "INSERT INTO x SELECT a FROM o JOIN r ON o.k = r.k AND r.t BETWEEN o.t AND o.t + INTERVAL 1 DAY",
        22,
        "of which stream is a",
    ),
    ("INSERT INTO x SELECT o.a FROM o JOIN r ON o.k = r.k", 43, "how far apart"),
    ("INSERT INTO x SELECT o.a FROM o JOIN r USING (k)", 38, "how far apart"),
    ("INSERT INTO x SELECT o.a FROM o FULL JOIN r ON o.k = r.k", 43, "JOIN or LEFT JOIN"),
    ("CREATE QUEUE q WITH (partitions 5)", 22, "partitions = 4"),
    ("CREATE QUEUE 'q'", 14, "`my-queue`"),
    ("CREATE QUERY q WITH (foo = 1) AS SELECT count(*) AS n FROM o GROUP BY window(t, '1 hour')", 34, "no option"),
    ("INSERT INTO a SELECT x FROM o; INSERT INTO a SELECT y FROM o", 32, "CREATE QUERY other"),
    ("INSERT INTO x SELECT a FROM o WHERE", 31, "something is missing"),
    ("INSERT INTO x SELECT a FROM o WHERE a = 'b", 41, "this quote (') is not closed"),
    ("CREATE VIEW v AS", 15, "a SELECT is expected"),
    ("INSERT INTO x SELECT a FROM o WHERE count(*) > 3", 37, "write HAVING"),
    ("INSERT INTO x SELECT sum(sum(a)) AS s FROM o GROUP BY window(t, '1 hour')", 26, "a second statement"),
    ("INSERT INTO x SELECT count(*) AS n FROM o GROUP BY CUBE(a), window(t, '1 hour')", 57, "a statement for each"),
    ("INSERT INTO x SELECT o.a FROM o LEFT ANTI JOIN r ON o.k = r.k", 48, "LEFT JOIN and WHERE"),
    ("INSERT INTO x SELECT o.a FROM o JOIN o r ON o.k = r.k", 38, "INSERT INTO `o-copy` SELECT * FROM `o`"),
    ("INSERT INTO x SELECT a FROM o, LATERAL explode(b) AS c", 40, "LATERAL VIEW explode"),
    ("CREATE QUERY q AS SELECT a FROM o", 26, "INSERT INTO queue"),
    ("CREATE QUEUE q (a intt)", 19, "is no type of Spark's"),
    ("CREATE QUEUE q (a array<strng>)", 19, "is no type of Spark's"),
    ("CREATE QUEUE q (a int", 16, "not closed"),
    ("CREATE QUEUE q (a int *)", 23, "a , is expected"),
    ("CREATE QUEUE q WITH (retention = 5)", 1, "there is no option 'retention'"),
    ("CREATE QUEUE q WITH (partitions = 'many')", 1, "partitions must be 1 to 1024"),
    # Clauses that change the result.
    ("INSERT INTO x SELECT a FROM o TABLESAMPLE (10 PERCENT)", 44, "rand() < 0.1"),
    ("INSERT INTO x SELECT a FROM (SELECT a FROM o) TABLESAMPLE (10 PERCENT)", 60, "rand() < 0.1"),
    ("INSERT INTO x SELECT a FROM o PIVOT (sum(a) FOR b IN (1, 2))", 38, "count_if"),
    ("INSERT INTO x SELECT a FROM o VERSION AS OF 3", 45, "where its query stands"),
    ("INSERT INTO x SELECT a FROM o FOR UPDATE", 22, "events never change"),
    ("INSERT INTO x SELECT * FROM a UNION ALL SELECT * FROM b LIMIT 5", 63, "penstock_live"),
    ("INSERT INTO x SELECT b FROM o AS y(b)", 34, "SELECT x AS name"),
    ("INSERT INTO x WITH y(b) AS (SELECT a FROM o) SELECT b FROM y", 20, "SELECT x AS name"),
    ("INSERT INTO x WITH RECURSIVE y AS (SELECT a FROM o) SELECT a FROM y", 30, "leave RECURSIVE out"),
    ("INSERT INTO x PARTITION (p = 1) SELECT a FROM o", 26, "DISTRIBUTE BY"),
    ("INSERT INTO x SELECT a FROM (SELECT a FROM o DISTRIBUTE BY a) y", 60, "at the end of the statement"),
    ("INSERT INTO x SELECT * EXCEPT (a) FROM o", 22, "declare them"),
    ("CREATE QUEUE o (a int); INSERT INTO x SELECT * EXCEPT (b) FROM o", 56, "there are a"),
    ("CREATE QUEUE o (a int); INSERT INTO x SELECT * REPLACE (1 AS a) FROM o", 57, "name the columns"),
    # Columns that would be null.
    ("INSERT INTO x SELECT price * qty AS total, total * 2 AS t2 FROM o", 44, "Write o.total for the field, or price"),
    ("CREATE QUEUE o (customer string); INSERT INTO x SELECT custmer AS c FROM o", 56, "there are customer"),
    ("CREATE QUEUE o (a int); INSERT INTO x SELECT a FROM o WHERE b > 3", 61, "end the list with *"),
    (
        "CREATE QUEUE o (a int); INSERT INTO x SELECT sum(b) AS s FROM o GROUP BY window(a, '1 hour')",
        50,
        "no column 'b'",
    ),
    ("CREATE QUEUE o (a int); INSERT INTO x SELECT b FROM (SELECT a FROM o) y", 46, "there are a"),
    (
        "CREATE REFERENCE r FROM 'r'; CREATE QUEUE o (a int); INSERT INTO x SELECT o.b FROM o JOIN r ON r.id = o.a",
        75,
        "there are a",
    ),
    # Aggregates that would be computed differently.
    (GROUPED.format(what="percentile(a, 0.5, b) AS p"), 59, "a value and a fraction"),
    (GROUPED.format(what="percentile_approx(a, 0.5, 100) AS p"), 77, "leave the accuracy out"),
    (GROUPED.format(what="approx_count_distinct(a, 0.01) AS p"), 59, "within 3 percent"),
    (GROUPED.format(what="max(a, b) AS p"), 59, "greatest compares several"),
    (GROUPED.format(what="count_if(a, b) AS p"), 59, "with AND"),
    (GROUPED.format(what="top_k(a, 1, 2) AS p"), 59, "top_k(x, 10)"),
    (GROUPED.format(what="percentile_approx( , 0.5) AS p"), 80, "there is no aggregate"),
    ("INSERT INTO out SELECT window(ts, '1 hour') AS w, count(*) AS n FROM a GROUP BY w, 0.5", 84, "no column 0.5"),
    (GROUPED.format(what="count(DISTINCT *) AS p"), 59, "there is no aggregate"),
    (GROUPED.format(what="first(a) FILTER (WHERE b > 1) AS p"), 59, "WHERE b > 1"),
    (GROUPED.format(what="last(a) IGNORE NULLS AS p"), 59, "WHERE x IS NOT NULL"),
    (
        "INSERT INTO x SELECT lower(a) AS a, count(*) AS n FROM o GROUP BY a, window(t, '1 hour') HAVING a = 'x'",
        97,
        "Write o.a or LOWER(a)",
    ),
    ("INSERT INTO x SELECT date_trunc('day', t) AS t, count(*) AS n FROM o GROUP BY t", 79, "a field of the events"),
    (
        "INSERT INTO x SELECT window.(t, '1 hour').start AS s FROM o GROUP BY a, window(t, '1 hour')",
        22,
        "add it to GROUP BY",
    ),
    # Statements that would replace or mix others.
    ("CREATE SINK s FROM a TO 'console'; CREATE SINK s FROM b TO 'console'", 36, "created twice"),
    ("CREATE REFERENCE r FROM 'a'; CREATE REFERENCE r FROM 'b'", 30, "created twice"),
    ("CREATE VIEW v AS SELECT * FROM a; CREATE VIEW v AS SELECT * FROM b", 35, "created twice"),
    ("CREATE QUEUE q; CREATE QUEUE q", 17, "created twice"),
    ("CREATE OR REPLACE QUEUE q", 19, "leave out OR REPLACE"),
    (
        "CREATE QUEUE a (x string); CREATE QUEUE b (x double); "
        "INSERT INTO o SELECT x FROM (SELECT * FROM a UNION ALL SELECT * FROM b) u",
        91,
        "x is string in one queue and double in another",
    ),
    (
        "CREATE QUEUE a (x int, y int); CREATE QUEUE b (y int, x int); "
        "INSERT INTO o SELECT x FROM (SELECT * FROM a UNION ALL SELECT * FROM b) u",
        99,
        "(x, y) and (y, x): write UNION ALL BY NAME",
    ),
]


def test_deeply_nested_statement_is_refused() -> None:
    with pytest.raises(InvalidSql, match=r"p.sql:1:1: it is nested too deep .* into views"):
        read("INSERT INTO x SELECT " + "(" * 3000 + "a" + ")" * 3000 + " AS b FROM o")


@pytest.mark.parametrize(("text", "column", "reason"), REFUSED, ids=[text for text, _, _ in REFUSED])
def test_invalid_statement_is_refused_with_its_position(text: str, column: int, reason: str) -> None:
    with pytest.raises(InvalidSql) as refused:
        read(f"-- a comment\n{text}")
    assert (refused.value.line, refused.value.column) == (2, column)
    assert str(refused.value).startswith(f"p.sql:2:{column}: ")
    assert reason in str(refused.value)
