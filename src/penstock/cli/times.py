"""Parsing and formatting of times on the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
#: A thousand years. Adding a longer span to the current time may overflow.
_LONGEST_SPAN = timedelta(days=365_000)


def parse_time(text: str) -> datetime:
    """Parse ``2026-01-31T12:00:00Z``, or ``90s``, ``15m``, ``2h``, ``1d`` before now."""
    age = _parse_span(text)
    if age is not None:
        return datetime.now(UTC) - age
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time: write 2026-01-31T12:00:00Z, or 15m for fifteen minutes ago (s, m, h, d)"
        ) from None
    if time.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no time zone: add one, such as a Z at the end")
    return time


def parse_duration(text: str) -> timedelta:
    """Parse ``90s``, ``15m``, ``2h``, ``1d``."""
    duration = _parse_span(text)
    if duration is None:
        raise typer.BadParameter(f"{text!r} is not a duration: write 90s, 15m, 24h or 30d")
    return duration


def _parse_span(text: str) -> timedelta | None:
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        return None
    amount, unit = match.groups()
    try:
        span = timedelta(**{_UNITS[unit]: float(amount)})
    except OverflowError:
        span = timedelta.max
    if span > _LONGEST_SPAN:
        raise typer.BadParameter(f"{text!r} is too long: write at most {_LONGEST_SPAN.days}d")
    return span


def format_time(time: datetime | None, *, millis: bool = False) -> str:
    """Format a time in UTC."""
    if time is None:
        return "–"
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") + (f".{time.microsecond // 1000:03}Z" if millis else "Z")
