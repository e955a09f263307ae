from __future__ import annotations

import pytest

from penstock.core.errors import SinkBusy
from penstock.sinks import Backoff
from penstock.sinks.http.circuit_breaker import CircuitBreaker


async def test_open_circuit_breaker_allows_single_attempts() -> None:
    now = 0.0
    breaker = CircuitBreaker(3, Backoff(first=10, longest=10), lambda: now)
    for _ in range(3):
        breaker.check()
        breaker.record_failure()
    with pytest.raises(SinkBusy) as refused:
        breaker.check()
    assert 5 <= (refused.value.retry_after or 0) <= 10
    now = 11.0
    breaker.check()  # one is let through
    with pytest.raises(SinkBusy):
        breaker.check()  # and no second beside it
    breaker.record_success()
    breaker.check()
    assert not breaker.is_open


async def test_requests_that_fail_together_lengthen_the_pause_once() -> None:
    now = 0.0
    breaker = CircuitBreaker(3, Backoff(first=1, longest=1000), lambda: now)
    for _ in range(16):
        breaker.check()  # all are sent before the first one fails
    for _ in range(16):
        breaker.record_failure()
    now = 1.1
    breaker.check()


async def test_others_wait_for_a_running_attempt_only_for_a_moment() -> None:
    now = 0.0
    breaker = CircuitBreaker(1, Backoff(first=0.5, longest=1000), lambda: now)
    breaker.record_failure()
    now = 1.0
    breaker.check()
    with pytest.raises(SinkBusy) as refused:
        breaker.check()
    assert (refused.value.retry_after or 0) <= 0.5
