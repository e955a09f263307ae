from __future__ import annotations

import pytest

from penstock.core.backoff import Backoff, RetryTimer
from penstock.core.errors import InvalidOption


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("failures", "bound"), [(1, 0.5), (2, 1.0), (3, 2.0), (7, 30.0), (10_000, 30.0)])
def test_the_pause_doubles_up_to_the_longest_and_is_shortened_by_up_to_half(failures: int, bound: float) -> None:
    pauses = [Backoff(0.5, 30.0).pause(failures) for _ in range(200)]
    assert bound / 2 <= min(pauses)
    assert max(pauses) <= bound
    assert len(set(pauses)) > 1, "every pause is the same: no jitter"


@pytest.mark.parametrize("value", [0, -1, 86_401, True, "1", float("nan"), None])
def test_a_backoff_takes_only_seconds_up_to_a_day(value: object) -> None:
    with pytest.raises(InvalidOption, match="first must be a number of seconds") as error:
        Backoff(first=value)  # type: ignore[arg-type]
    assert error.value.option == "first"


def test_a_timer_grows_its_pauses_until_it_is_reset() -> None:
    timer = RetryTimer(Backoff(1.0, 100.0))
    for bound in (1.0, 2.0, 4.0):
        pause = timer.next_pause()
        assert pause is not None
        assert bound / 2 <= pause <= bound
    timer.reset()
    pause = timer.next_pause()
    assert pause is not None
    assert pause <= 1.0


def test_a_timer_gives_up_before_a_pause_that_passes_the_deadline() -> None:
    clock = Clock()
    timer = RetryTimer(Backoff(1.0, 1.0), seconds=10, clock=clock)
    clock.now += 9
    assert timer.next_pause() is not None
    clock.now += 0.75
    assert timer.next_pause() is None


def test_a_timer_pauses_at_least_as_long_as_the_other_side_asks() -> None:
    timer = RetryTimer(Backoff(0.01, 0.01), seconds=10, clock=Clock())
    pause = timer.next_pause(retry_after=4.0)
    assert pause is not None
    assert 4.0 <= pause <= 5.0
    assert timer.next_pause(retry_after=11.0) is None
