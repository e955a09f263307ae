"""Expressions of views: what cannot be computed is null, and every change of another view counts."""

# ruff: noqa: S608 - SQL of tests

from __future__ import annotations

import random

import pytest

from penstock.core.errors import RepeatedFailure
from tests.engine.pipelines import Bench
from tests.engine.views.statements import expected_rows, make_views, read_rows
from tests.engine.views.test_views import TOTALS, create_queues, push_random, replay_changes


def run(bench: Bench, statements: str) -> None:
    for name, (stream, options) in make_views(statements).items():
        bench.run(stream, name, **options)


@pytest.mark.parametrize("most", [1, 100])
def test_what_cannot_be_computed_is_null_however_events_are_divided(bench: Bench, most: int) -> None:
    create_queues(bench)
    ratio = "SELECT customer, sum(amount) / sum(id % 2) AS ratio, count(*) AS n FROM orders GROUP BY customer"
    orders = [{"id": number, "customer": "ada", "amount": 6} for number in (2, 4, 5, 7)]
    bench.push([(None, order) for order in [{"id": 0, "customer": "bob", "amount": 1}, *orders]])
    ((stream, _),) = make_views(f"CREATE MATERIALIZED VIEW v AS {ratio}").values()
    bench.run(stream, "v", max_events_per_cycle=most)
    assert read_rows(bench.url, "v") == expected_rows(bench, ratio.replace("sum(id % 2)", "nullif(sum(id % 2), 0)"))
    assert not bench.letters()


def test_casts_and_functions_that_fail_are_null(bench: Bench) -> None:
    create_queues(bench)
    bench.push([(None, {"id": 1, "customer": "x", "amount": 1}), (None, {"id": 2, "customer": "7", "amount": 1})])
    run(
        bench,
        "CREATE MATERIALIZED VIEW v AS SELECT id, CAST(customer AS INT) AS number, to_date(customer) AS day, "
        "element_at(array(1), CAST(id AS INT)) AS item, id DIV (id - 1) AS quotient FROM orders",
    )
    question = (
        "SELECT id, TRY_CAST(customer AS INT), NULL, CASE WHEN id = 1 THEN 1 END, "
        "CASE WHEN id <> 1 THEN id // (id - 1) END FROM orders"
    )
    assert read_rows(bench.url, "v") == expected_rows(bench, question)
    assert not bench.letters()


def test_a_text_that_is_no_number_equals_none(bench: Bench) -> None:
    create_queues(bench)
    bench.push(
        [(None, {"id": number, "customer": name, "amount": 1}) for number, name in ((1, "x"), (2, "2"), (3, "1"))]
    )
    run(
        bench,
        "CREATE MATERIALIZED VIEW a AS SELECT id FROM orders WHERE customer = 2;"
        "CREATE MATERIALIZED VIEW b AS SELECT o.id, p.id AS other FROM orders o JOIN orders p ON o.customer = p.id;"
        "CREATE MATERIALIZED VIEW c AS SELECT customer > 1 AS is_more, count(*) AS n FROM orders GROUP BY customer > 1",
    )
    assert read_rows(bench.url, "a") == expected_rows(bench, "SELECT 2")
    assert read_rows(bench.url, "b") == expected_rows(bench, "SELECT 2, 2 UNION ALL SELECT 3, 1")
    assert read_rows(bench.url, "c") == expected_rows(
        bench, "SELECT NULL, 1 UNION ALL SELECT true, 1 UNION ALL SELECT false, 1"
    )
    assert not bench.letters()


def test_times_far_from_now_keep_their_microseconds(bench: Bench) -> None:
    create_queues(bench)
    times = ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999998Z", "0002-01-01T00:00:00.000001Z"]
    bench.push([(None, {"id": number, "customer": "ada", "placed": time}) for number, time in enumerate(times)])
    run(bench, "CREATE MATERIALIZED VIEW v AS SELECT placed, count(*) AS n FROM orders GROUP BY placed")
    found = bench.ask(
        "SELECT array_agg(to_json(placed AT TIME ZONE 'UTC') #>> '{}' ORDER BY placed) FROM penstock_live.v"
    )
    assert [f"{time}Z" for time in found] == sorted(times)


def test_an_aggregate_of_all_rows_is_a_row_without_any(bench: Bench) -> None:
    create_queues(bench)
    push_random(bench, random.Random(1), 0, 5)
    large = "SELECT id, (SELECT count(*) FROM payments WHERE paid > 1000) AS n, (SELECT max(paid) FROM payments) AS m "
    run(
        bench,
        f"CREATE MATERIALIZED VIEW totals AS {TOTALS};"
        "CREATE MATERIALIZED VIEW rich AS SELECT count(*) AS n, sum(total) AS total FROM totals WHERE total > 100000;"
        f"CREATE MATERIALIZED VIEW with_count AS {large} FROM orders",
    )
    assert read_rows(bench.url, "rich") == expected_rows(bench, "SELECT 0, NULL")
    assert read_rows(bench.url, "with_count") == expected_rows(bench, f"{large} FROM orders")


def test_an_update_of_columns_that_are_not_selected_is_no_change(bench: Bench) -> None:
    create_queues(bench)
    statement = (
        f"CREATE MATERIALIZED VIEW buyers WITH (changes = 'changes') AS SELECT customer FROM ({TOTALS}) WHERE total > 0"
    )
    for number in range(3):
        bench.push([(None, {"id": number, "customer": "ada", "amount": 1})])
        run(bench, statement)
    assert [change["op"] for change in bench.emitted("changes")] == ["insert"]


def test_columns_may_have_any_name(bench: Bench) -> None:
    create_queues(bench)
    push_random(bench, random.Random(2), 0, 20)
    both = (
        "SELECT id AS a0, id % 3 AS mask, id % 2 AS is_delete FROM orders INTERSECT "
        "SELECT id AS a0, id % 3 AS mask, id % 2 AS is_delete FROM payments"
    )
    sums = "SELECT customer AS sum_a0, id % 2 AS a1, count(id) AS count_a0, max(id) AS a0 FROM orders GROUP BY 1, 2"
    run(bench, f"CREATE MATERIALIZED VIEW v AS {both}; CREATE MATERIALIZED VIEW w AS {sums}")
    assert read_rows(bench.url, "v") == expected_rows(bench, both)
    assert read_rows(bench.url, "w") == expected_rows(bench, sums)


def test_doubles_that_are_no_numbers_are_null(bench: Bench) -> None:
    create_queues(bench)
    bench.push([(None, {"id": number, "customer": "ada", "amount": 1}) for number in range(-1, 2)])
    run(
        bench,
        "CREATE MATERIALIZED VIEW roots WITH (changes = 'changes') AS "
        "SELECT id, sqrt(id) AS root, 1e308 * id * 10 AS large FROM orders;"
        "CREATE MATERIALIZED VIEW copy AS SELECT * FROM roots",
    )
    rows = expected_rows(
        bench, "SELECT id, CASE WHEN id >= 0 THEN sqrt(id) END, CASE WHEN id = 0 THEN 0 END FROM orders"
    )
    assert read_rows(bench.url, "roots") == rows
    assert replay_changes(bench, "changes") == rows
    assert read_rows(bench.url, "copy") == rows


def test_a_change_that_cannot_be_applied_ends_the_query(bench: Bench) -> None:
    create_queues(bench)
    bench.push([(None, {"id": number, "customer": "ada", "amount": 1}) for number in range(3)])
    with pytest.raises(RepeatedFailure, match=r"a change of another view fails every cycle.*'w' would be wrong"):
        run(
            bench,
            f"CREATE MATERIALIZED VIEW v AS {TOTALS};"
            "CREATE MATERIALIZED VIEW w AS SELECT customer, array(1)[orders] AS item FROM v",
        )
    assert not bench.letters()


def test_maps_in_arrays_can_be_read_twice(bench: Bench) -> None:
    create_queues(bench)
    chance = random.Random(3)
    push_random(bench, chance, 0, 12_000)
    statement = (
        "WITH t AS (SELECT id, array(map('id', id)) AS m FROM orders) "
        "SELECT a.id, b.m[0]['id'] AS other FROM t a JOIN t b ON a.id = b.id"
    )
    run(bench, f"CREATE MATERIALIZED VIEW v AS {statement}")
    assert read_rows(bench.url, "v") == expected_rows(bench, "SELECT id, id FROM orders")
