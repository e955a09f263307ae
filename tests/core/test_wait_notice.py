from __future__ import annotations

from penstock.core.wait_notice import WaitNotice


class ManualClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def reports(pause: float, total: float) -> list[str]:
    """Wait in pauses of this length, and return the reports."""
    clock, texts = ManualClock(), list[str]()
    notice = WaitNotice(texts.append, clock)
    while clock.now < 100 + total:
        notice.waits("no room", pause)
        clock.now += pause
    return texts


def test_short_waits_are_not_reported() -> None:
    assert reports(pause=0.5, total=1.5) == []


def test_long_waits_are_reported_every_ten_seconds() -> None:
    assert reports(pause=0.5, total=30) == [
        "waiting for 1.5 s: no room",
        "waiting for 11.5 s: no room",
        "waiting for 21.5 s: no room",
    ]


def test_a_long_pause_is_reported_before_it_begins() -> None:
    assert reports(pause=30, total=30) == ["waiting: no room"]
