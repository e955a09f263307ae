"""Aggregates as functions and as text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidOption, InvalidRequest
from penstock.stream import aggregates as agg
from penstock.stream.aggregates import KINDS, WindowAggregate, check_aggregate


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("count", agg.count()),
        ("count()", agg.count()),
        ("COUNT(*)", agg.count()),
        ("count( 1 )", agg.count()),
        ("count(refund)", agg.count("refund")),
        ("count(DISTINCT page)", agg.count_distinct("page")),
        ("count(distinct(page))", agg.count_distinct("(page)")),
        ("count(distinct_pages)", agg.count("distinct_pages")),
        ("sum(amount)", agg.sum("amount")),
        (" Sum ( price * (1 + vat) ) ", agg.sum("price * (1 + vat)")),
        ("sum(coalesce(a, b))", agg.sum("coalesce(a, b)")),
        ("count_if(kind = ')')", agg.count_if("kind = ')'")),
        ("count_if(kind IN ('a', 'b'))", agg.count_if("kind IN ('a', 'b')")),
        ("percentile(latency, 0.95)", agg.percentile("latency", 0.95)),
        ("percentile(greatest(a, b), .5)", agg.percentile("greatest(a, b)", 0.5)),
        ("top_k(page)", agg.top_k("page", 10)),
        ("top_k(page, 3)", agg.top_k("page", 3)),
        ("top_k(concat(a, b))", agg.top_k("concat(a, b)", 10)),
        ("top_k(concat(a, b), 5)", agg.top_k("concat(a, b)", 5)),
        *((f"{kind}(x)", WindowAggregate(kind, "x")) for kind in KINDS if kind not in ("percentile", "top_k")),
    ],
)
def test_text_is_parsed_as_aggregate(text: str, meant: WindowAggregate) -> None:
    assert check_aggregate("a", text) == meant


@given(st.sampled_from([kind for kind in KINDS if kind != "count"]), st.sampled_from(["a", "f(a, b)", "'x, y' || b"]))
def test_description_parses_back_to_the_aggregate(kind: str, expression: str) -> None:
    number = {"percentile": 0.25, "top_k": 7.0}.get(kind)
    made = WindowAggregate(kind, expression, number)
    assert check_aggregate("a", made.describe()) == made


@pytest.mark.parametrize(
    "value",
    [
        "",
        "total",
        "amount > 1",
        "sum(a) + sum(b)",
        "sum(a",
        "median(a)",
        "sum a",
        None,
        7,
        sum,
        {"sum": "a"},
        WindowAggregate("no"),
    ],
    ids=str,
)
def test_error_for_invalid_aggregate_contains_its_name(value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"aggregate 'revenue'"):
        check_aggregate("revenue", value)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("median(a)", r"There are approx_distinct, avg, count,.*percentile, top_k"),
        ("sum", r"sum takes an argument: write 'sum\(amount\)'"),
        ("sum()", r"sum takes an argument"),
        ("top_k", r"'top_k\(page, 10\)'"),
        ("sum(a, b)", r"takes one expression"),
        ("sum(DISTINCT a)", r"takes one expression"),
        ("count(DISTINCT a, b)", r"takes one expression"),
        ("percentile(a)", r"'percentile\(latency_ms, 0.95\)'"),
        ("percentile(a, b)", r"fraction must be a number"),
        ("percentile(a, 95)", r"from 0 to 1"),
        ("top_k(a, 2.5)", r"k must be a number"),
        ("top_k(a, 0)", r"from 1 to 1,000"),
        ("sum(a) + sum(b)", r"closes nothing"),
        ("sum('a)", r"quote"),
    ],
)
def test_error_for_invalid_text_contains_an_example(text: str, advice: str) -> None:
    with pytest.raises(InvalidRequest, match=advice) as caught:
        check_aggregate("revenue", text)
    assert "aggregate 'revenue'" in str(caught.value)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, 95, float("nan"), True, "0.5", None])
def test_percentile_fraction_is_between_0_and_1(fraction: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        agg.percentile("a", fraction)
    assert caught.value.option == "fraction"


@pytest.mark.parametrize("k", [0, -1, 1001, 2.0, True, "3", None])
def test_top_k_number_is_between_1_and_1000(k: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        agg.top_k("a", k)
    assert caught.value.option == "k"


@pytest.mark.parametrize(
    ("aggregate", "words"),
    [
        (agg.count(), "count()"),
        (agg.sum("a +\n  b"), "sum(a + b)"),
        (agg.sum(lambda event: event["a"]), "sum(lambda)"),
        (agg.top_k("page", 1000), "top_k(page, 1000)"),
        (agg.percentile("a", 1), "percentile(a, 1)"),
        (agg.percentile("a", 0.99999999), "percentile(a, 0.99999999)"),
    ],
)
def test_description_contains_all_digits(aggregate: WindowAggregate, words: str) -> None:
    assert aggregate.describe() == words


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("count", "percentile")])
def test_empty_expression_is_refused(kind: str) -> None:
    with pytest.raises(InvalidRequest, match=kind):
        getattr(agg, kind)("")
