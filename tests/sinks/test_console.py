from __future__ import annotations

import asyncio
import io

from penstock.sinks import Console
from penstock.sinks.conformance import make_events


def test_console_prints_windows() -> None:
    text = io.StringIO()
    window = {
        "key": "boiler",
        "window_start": "2026-01-31T12:00:00+00:00",
        "window_end": "2026-01-31T12:00:05+00:00",
        "avg": 61.23,
        "min": 40.1,
        "max": 83.94,
        "count": 50,
        "alerts": 2,
    }
    quiet = {**window, "alerts": 0}
    evil = {"text": "\x1b[2J"}

    asyncio.run(Console(text).write([*make_events([window, quiet, 7, evil], key="boiler")]))

    assert text.getvalue().splitlines() == [
        "[2026-01-31T12:00:00Z] boiler: avg=61.2 min=40.1 max=83.9 count=50 [2 ALERTS]",
        "[2026-01-31T12:00:00Z] boiler: avg=61.2 min=40.1 max=83.9 count=50",
        "[2026-01-31T12:00:00Z] boiler: 7",
        "[2026-01-31T12:00:00Z] boiler: text=\\x1b[2J",
    ]


def test_console_prints_colors() -> None:
    text = io.StringIO()
    asyncio.run(Console(text, color=True).write(make_events([{"alerts": 1}])))
    assert "\x1b[" in text.getvalue()
