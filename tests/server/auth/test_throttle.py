"""The throttle for failed attempts."""

from __future__ import annotations

from penstock.server.auth.throttle import FailureThrottle


def test_throttle_counts_networks_for_a_minute_in_bounded_memory() -> None:
    now = 1000.0
    attempts = FailureThrottle(2, lambda: now)
    for _ in range(2):
        attempts.record_failure("2001:db8::1")
    assert attempts.wait_seconds("2001:db8::ffff") == 60, "the same /64"
    assert attempts.wait_seconds("2001:db8:0:1::1") == 0
    now += 60
    assert attempts.wait_seconds("2001:db8::1") == 0
    for n in range(20_000):
        attempts.record_failure(f"10.0.{n // 250}.{n % 250}")
    assert len(attempts) == 10_000
