"""Budgets of deliveries: the limit holds for every time at which events may reach the receiver."""

from __future__ import annotations

import random

import pytest

from penstock.engine.gates.delivery_meters import (
    BucketDelivery,
    DeliveryMeter,
    StoredDelivery,
    WindowDelivery,
    build_delivery_meter,
)
from penstock.engine.gates.rate_limiters import Limit
from penstock.stream.gates import NANOS_PER_TOKEN as TOKEN
from tests.engine.gates.ideal_limiter import Grant, respects_bucket, respects_window

BUCKET = Limit("token_bucket", 5 * TOKEN, rate=10 * TOKEN)
WINDOW = Limit("sliding_window", 7 * TOKEN, window_us=1_000_000)


def deliver_at_random(meter: DeliveryMeter, limit: Limit, seed: int) -> list[Grant]:
    """Send events with up to four requests at once; each arrives some time before its request ends."""
    generator = random.Random(seed)
    now, arrivals = 0, []
    running: list[tuple[int, int]] = []
    for _ in range(400):
        now += generator.choice([1, 1_000, 50_000, 200_000, 2_000_000])
        for end, cost in [each for each in running if each[0] <= now]:
            running.remove((end, cost))
            meter.complete(cost, end)
        meter.advance(limit, now)
        cost = generator.randint(1, 3) * TOKEN
        if len(running) < 4 and meter.budget >= cost:
            meter.reserve(cost)
            if generator.random() < 0.1:
                meter.cancel(cost)  # it was not sent
                continue
            end = now + generator.choice([10, 1_000, 300_000, 1_500_000])
            arrivals.append((generator.choice([now, end, generator.randint(now, end)]), cost))
            running.append((end, cost))
            running.sort()
    return sorted(arrivals)


@pytest.mark.parametrize("seed", range(50))
def test_no_interval_at_the_receiver_exceeds_a_bucket(seed: int) -> None:
    arrivals = deliver_at_random(BucketDelivery(BUCKET, None, 0), BUCKET, seed)
    assert len(arrivals) > 50
    assert respects_bucket(arrivals, BUCKET.amount, BUCKET.rate)


@pytest.mark.parametrize("seed", range(50))
def test_no_window_at_the_receiver_exceeds_its_limit(seed: int) -> None:
    arrivals = deliver_at_random(WindowDelivery(WINDOW, None, 0), WINDOW, seed)
    assert len(arrivals) > 50
    assert respects_window(arrivals, WINDOW.amount, WINDOW.window_us)


def test_a_restored_budget_is_never_larger_than_the_one_in_memory() -> None:
    meter = BucketDelivery(BUCKET, None, 0)
    meter.reserve(5 * TOKEN)
    stored = StoredDelivery(meter.state(), meter.in_flight, BUCKET)
    restored = build_delivery_meter(BUCKET, stored, 100_000)
    restored.advance(BUCKET, 100_000)
    meter.cancel(2 * TOKEN)
    meter.advance(BUCKET, 100_000)
    assert restored.budget == 0  # all may have arrived just now
    assert meter.budget == 2 * TOKEN  # 3 are in flight


def test_a_raised_limit_counts_from_the_first_look_at_it() -> None:
    meter = BucketDelivery(BUCKET, None, 0)
    meter.reserve(5 * TOKEN)
    meter.complete(5 * TOKEN, 0)
    raised = Limit("token_bucket", 100 * TOKEN, rate=1_000 * TOKEN)
    meter.advance(raised, 200_000)
    assert meter.budget == 2 * TOKEN
    meter.advance(raised, 210_000)
    assert meter.budget == 12 * TOKEN
