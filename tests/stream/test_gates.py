"""Rate-limit gates of a definition."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from penstock import concurrency_gate, sliding_window_gate, token_bucket_gate
from penstock.core.errors import InvalidOption, InvalidRequest
from penstock.stream.definition import Definition
from penstock.stream.fingerprint import describe
from penstock.stream.gates import NANOS_PER_TOKEN, Cost, SlidingWindowGate, TokenBucketGate
from tests.stream.spark_doubles import COLUMN

CALLS = Definition.from_("calls")
BUCKET = token_bucket_gate(capacity=10, refill_per_sec=5)
GATED = CALLS.gate(BUCKET)


def test_limits_are_stored_in_billionths() -> None:
    assert token_bucket_gate(capacity=1.3, refill_per_sec=0.1) == TokenBucketGate(1_300_000_000, 100_000_000, Cost())
    assert sliding_window_gate(limit=20, window_sec=0.5) == SlidingWindowGate(20 * NANOS_PER_TOKEN, 500_000, Cost())


@pytest.mark.parametrize("cost", ["weight", "size(items)", COLUMN, lambda event: event["weight"]])
def test_cost_is_a_field_an_expression_or_a_function(cost: Any) -> None:
    made = token_bucket_gate(capacity=10, refill_per_sec=5, cost_fn=cost)
    assert made.cost.fixed is None
    assert made.cost.expression is cost


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: token_bucket_gate(capacity=0, refill_per_sec=5), "capacity must be a number above 0"),
        (lambda: token_bucket_gate(capacity=5, refill_per_sec=-1), "refill_per_sec must be a number above 0"),
        (lambda: token_bucket_gate(capacity=math.nan, refill_per_sec=1), "capacity must be a number above 0"),
        (lambda: token_bucket_gate(capacity=True, refill_per_sec=1), "capacity must be a number above 0"),
        (lambda: token_bucket_gate(capacity=5, refill_per_sec=1, cost_fn=6), "more than the capacity of 5"),
        (lambda: token_bucket_gate(capacity=5, refill_per_sec=1, cost_fn=-1), "a cost is not negative"),
        (lambda: token_bucket_gate(capacity=5, refill_per_sec=1, cost_fn=math.nan), "its cost is no number"),
        (
            lambda: token_bucket_gate(capacity=5, refill_per_sec=1, cost_fn=0, allow_zero_cost=False),
            "it costs nothing, which this gate does not allow",
        ),
        (lambda: token_bucket_gate(capacity=5, refill_per_sec=1, cost_fn=[1]), "cost_fn must be a number, a field"),
        (lambda: sliding_window_gate(limit=5, window_sec=0), "window_sec must be a number of seconds"),
        (lambda: concurrency_gate(limit=0, group="workers"), "limit must be a whole number from 1"),
    ],
)
def test_invalid_limits_and_costs_are_refused(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        make()


@pytest.mark.parametrize(
    ("define", "sentence"),
    [
        (lambda: CALLS.gate(5), "gate takes the result of token_bucket_gate"),  # type: ignore[arg-type]  # that is the point
        (lambda: CALLS.key_by("tenant").gate(BUCKET), "let a stream in front repartition"),
        (lambda: GATED.key_by("tenant"), r"key_by comes after the gate.* end this stream with \.to"),
        (lambda: GATED.window_tumbling(seconds=5), r"a window comes after the gate.* end this stream with \.to"),
        (lambda: CALLS.window_tumbling(seconds=5).gate(BUCKET), "a stream has a gate or a window"),
        (lambda: GATED.map("amount"), "put it before the gate"),
        (lambda: GATED.map("amount"), "would see events before the gate has admitted them"),
        (lambda: GATED.foreach(print), "would see events before the gate has admitted them"),
        (lambda: CALLS.to("out").gate(BUCKET), "gate comes before"),
        (lambda: Definition.from_("a", "b").gate(BUCKET), "one budget for each key of one queue"),
        (lambda: GATED.check(), "end the stream with .to"),
        (
            lambda: CALLS.gate(concurrency_gate(limit=1, group="w")).to("out", partition="tenant"),
            "leave out partition",
        ),
    ],
)
def test_invalid_combinations_with_gates_are_refused(define: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        define()


def test_advice_for_a_window_after_a_gate_is_accepted() -> None:
    GATED.to("admitted").check()
    Definition.from_("admitted").key_by("tenant").window_tumbling(seconds=5).aggregate({"n": "count"}).check()


def test_limits_are_not_part_of_the_description() -> None:
    """Limits can change while a query runs, so they can change between two starts too."""
    wider = CALLS.gate(token_bucket_gate(capacity=100, refill_per_sec=50)).to("out")
    dearer = CALLS.gate(token_bucket_gate(capacity=100, refill_per_sec=50, cost_fn="weight")).to("out")
    assert describe(GATED.to("out")) == describe(wider)
    assert describe(wider) != describe(dearer)


def test_queues_can_be_client_handles() -> None:
    from penstock import Penstock

    q = Penstock("postgresql://nowhere")
    assert Definition.from_(q.queue("calls")).gate(BUCKET).to(q.queue("out")) == GATED.to("out")
