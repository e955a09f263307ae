"""Times as people type and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_time(text: str) -> datetime:
    """Read ``2026-01-31T12:00:00Z``, or ``90s``, ``15m``, ``2h``, ``1d`` for so long ago."""
    ago = _duration(text)
    if ago is not None:
        return datetime.now(UTC) - ago
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time: write 2026-01-31T12:00:00Z, or 15m for fifteen minutes ago (s, m, h, d)"
        ) from None
    if moment.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no time zone: add one, such as a Z at the end")
    return moment


def parse_duration(text: str) -> timedelta:
    """Read ``90s``, ``15m``, ``2h``, ``1d``."""
    duration = _duration(text)
    if duration is None:
        raise typer.BadParameter(f"{text!r} is not a span of time: write 90s, 15m, 24h or 30d")
    return duration


def _duration(text: str) -> timedelta | None:
    found = _AGO.fullmatch(text.strip())
    try:
        return None if found is None else timedelta(**{_UNITS[found[2]]: float(found[1])})
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is longer than time is reckoned here") from None


def show_time(moment: datetime | None, *, millis: bool = False) -> str:
    """Write a moment in UTC."""
    if moment is None:
        return "–"
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") + (
        f".{moment.microsecond // 1000:03}Z" if millis else "Z"
    )
