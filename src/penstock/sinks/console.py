"""Events as lines for people: when, whose, and what."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TextIO

from penstock.core.errors import SinkClosed
from penstock.sinks.base import Sink

if TYPE_CHECKING:
    from rich.text import Text

    from penstock.log.event import Event

#: Fields that the beginning of the line tells already.
_TOLD = ("key", "window_start", "window_end")
#: What an alert of a rule has, and little else.
_ALERT = frozenset(("rule", "state", "message"))


class Console(Sink):
    """Prints ``[2026-01-31T12:00:00Z] boiler: avg=61.2 min=40.1 max=83.9 count=50 [2 ALERTS]``, coloured on a terminal.

    The time is a window's start, or else the event's own. A field called ``alerts`` (or as ``alerts`` says) with a
    number above 0 is shouted at the end. An alert of a rule is its message.
    """

    name = "console"

    def __init__(self, stream: TextIO | None = None, *, alerts: str = "alerts", color: bool | None = None) -> None:
        self._stream = stream
        self._alerts = alerts
        self._color = color

    async def write(self, events: Sequence[Event]) -> None:
        """Print them, a line each."""
        try:
            await asyncio.to_thread(self._print, [self.line(event) for event in events])
        except BrokenPipeError:
            raise SinkClosed("whoever read what is printed has gone") from None

    def line(self, event: Event) -> Text:
        """One event as a line."""
        from rich.text import Text

        data = event.data
        start = data.get("window_start") if isinstance(data, Mapping) else None
        when = start if isinstance(start, str) else _iso(event.time)
        line = Text.assemble(
            (f"[{_visible(_short(when))}] ", "dim"), (f"{_visible(event.key or event.queue)}:", "cyan")
        )
        if isinstance(data, Mapping) and data.keys() >= _ALERT:
            style = "bold red" if data["state"] == "firing" else "green"
            line = Text.assemble((f"[{_visible(_short(when))}] ", "dim"), (f"{_value(data['rule'])} ", "cyan"))
            return line.append(f"{_value(data['state'])}: ", style).append(_value(data["message"]))
        if not isinstance(data, Mapping):
            return line.append(f" {_value(data)}")
        for name, value in data.items():
            if name not in _TOLD and name != self._alerts:
                line.append(f" {_visible(str(name))}=", "dim").append(_value(value))
        alerts = data.get(self._alerts)
        if isinstance(alerts, int | Decimal) and not isinstance(alerts, bool) and alerts > 0:
            line.append(f" [{alerts} ALERTS]", "bold red")
        return line

    def _print(self, lines: Sequence[Text]) -> None:
        from rich.console import Console as Screen

        stream = self._stream or sys.stdout
        screen = Screen(file=stream, force_terminal=self._color, highlight=False, emoji=False, markup=False)
        # Not printed by the screen itself, which would end the process when nobody reads any more.
        with screen.capture() as text:
            for line in lines:
                screen.print(line, soft_wrap=True)
        stream.write(text.get())
        stream.flush()


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


def _short(when: str) -> str:
    return when.removesuffix("+00:00") + "Z" if when.endswith("+00:00") else when


def _value(value: Any) -> str:
    if isinstance(value, float | Decimal):
        return f"{value:.1f}"
    return _visible(value if isinstance(value, str) else str(value))


def _visible(text: str) -> str:
    """The text with everything escaped that could do something to a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
