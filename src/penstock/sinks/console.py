"""``Console``: prints each event as a line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TextIO

from penstock.core.errors import SinkClosed
from penstock.sinks.base import Sink

if TYPE_CHECKING:
    from rich.text import Text

    from penstock.log.event import Event

#: Fields that the beginning of the line shows.
_PREFIX_FIELDS = ("key", "window_start", "window_end")
#: The fields by which an alert of a rule is recognized.
_ALERT_FIELDS = frozenset(("rule", "state", "message"))


class Console(Sink):
    """Prints ``[2026-01-31T12:00:00Z] boiler: avg=61.2 min=40.1 max=83.9 count=50 [2 ALERTS]``, in color on a terminal.

    The time is the start of the window, or the time of the event if it has none. An alert of a rule is printed as its
    message.

    Args:
        stream: The stream to print to (default: standard output).
        alerts: The field with a number of alerts, which is printed at the end of the line if it is above 0.
        color: Whether to print in color; None detects a terminal.
    """

    keeps_limits = False
    name = "console"

    def __init__(self, stream: TextIO | None = None, *, alerts: str = "alerts", color: bool | None = None) -> None:
        self._stream = stream
        self._alerts = alerts
        self._color = color

    async def write(self, events: Sequence[Event]) -> None:
        """Print the events."""
        try:
            await asyncio.to_thread(self._print, [self.line(event) for event in events])
        except BrokenPipeError:
            raise SinkClosed("the reader of the output has closed it") from None

    def line(self, event: Event) -> Text:
        """Return the line of an event."""
        from rich.text import Text

        data = event.data
        start = data.get("window_start") if isinstance(data, Mapping) else None
        when = start if isinstance(start, str) else event.time.astimezone(UTC).isoformat()
        line = Text().append(f"[{_escape(when.replace('+00:00', 'Z'))}] ", "dim")
        if isinstance(data, Mapping) and data.keys() >= _ALERT_FIELDS:
            style = "bold red" if data["state"] == "firing" else "green"
            line.append(f"{_value(data['rule'])} ", "cyan").append(f"{_value(data['state'])}: ", style)
            return line.append(_value(data["message"]))
        line.append(f"{_escape(event.key or event.queue)}:", "cyan")
        if not isinstance(data, Mapping):
            return line.append(f" {_value(data)}")
        for name, value in data.items():
            if name not in _PREFIX_FIELDS and name != self._alerts:
                line.append(f" {_escape(str(name))}=", "dim").append(_value(value))
        alerts = data.get(self._alerts)
        if isinstance(alerts, int | Decimal) and not isinstance(alerts, bool) and alerts > 0:
            line.append(f" [{alerts} ALERTS]", "bold red")
        return line

    def _print(self, lines: Sequence[Text]) -> None:
        from rich.console import Console as Terminal

        stream = self._stream or sys.stdout
        terminal = Terminal(file=stream, force_terminal=self._color, highlight=False, emoji=False, markup=False)
        # rich ends the process when it prints to a closed pipe, so the text is written here.
        with terminal.capture() as text:
            for line in lines:
                terminal.print(line, soft_wrap=True)
        stream.write(text.get())
        stream.flush()


def _value(value: Any) -> str:
    if isinstance(value, float | Decimal):
        return f"{value:.1f}"
    return _escape(value if isinstance(value, str) else str(value))


def _escape(text: str) -> str:
    """Escape the control characters of a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
