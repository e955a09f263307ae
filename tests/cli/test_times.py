from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import typer

from penstock.cli.times import parse_duration, parse_time


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("90s", timedelta(seconds=90)),
        ("1.5m", timedelta(seconds=90)),
        (" 2 h ", timedelta(hours=2)),
        ("365000d", timedelta(days=365_000)),
    ],
)
def test_parse_duration(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["365001d", "9999999999d", f"{'9' * 400}s"])
def test_too_long_duration_is_rejected(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is too long: write at most 365000d"):
        parse_duration(text)


def test_longest_duration_is_a_valid_age() -> None:
    age = datetime.now(UTC) - parse_time("365000d")
    assert abs(age - timedelta(days=365_000)) < timedelta(minutes=1)
