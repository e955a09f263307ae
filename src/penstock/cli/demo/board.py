"""The live numbers on a terminal: a table that moves, or a line now and then where nobody watches."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.cli.demo.script import Phase
from penstock.cli.output import escape_control_characters
from penstock.core.formatting import number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from penstock.cli.demo.checks import Auditor
    from penstock.cli.demo.expected import Books
    from penstock.cli.demo.partner import Partner
    from penstock.cli.demo.queries import Look

_REPORT_SECONDS = 10.0


class Board:
    """Says nothing."""

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *error: Any) -> None:
        """Leave the screen as it is."""

    def begin(self, phase: Phase) -> None:
        """A phase begins."""

    def show(self, rows: list[tuple[str, str]]) -> None:
        """Show the numbers of now."""


class PlainBoard(Board):
    """A line for each phase and every so often one with the numbers: what a log can keep."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = time.monotonic()

    def begin(self, phase: Phase) -> None:
        """A phase begins."""
        self._say(f"== {phase.title}: {phase.look}")

    def show(self, rows: list[tuple[str, str]]) -> None:
        """Show the numbers of now, if it was a while ago."""
        if time.monotonic() - self._told >= _REPORT_SECONDS:
            self._told = time.monotonic()
            for name, value in rows:
                self._say(f"   {name}: {value}")

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)
        self._console.file.flush()


class LiveBoard(Board):
    """A table that moves."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._phase: Phase | None = None
        self._rows: list[tuple[str, str]] = []
        self._live = Live(get_renderable=self._table, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Board:
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """Take the table away."""
        self._live.__exit__(*error)

    def begin(self, phase: Phase) -> None:
        """A phase begins."""
        from rich.text import Text

        self._phase = phase
        self._console.print(
            Text.assemble((f"{time.strftime('%H:%M:%S')}  ", "dim"), (phase.title, "bold"), f"  {phase.look}")
        )

    def show(self, rows: list[tuple[str, str]]) -> None:
        """Show the numbers of now."""
        self._rows = rows

    def _table(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        title = self._phase.title if self._phase is not None else ""
        table = Table(box=box.ROUNDED, show_header=False, title=title, caption="Ctrl-C ends it, and adds it all up")
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(overflow="ellipsis", no_wrap=True)
        for name, value in self._rows:
            table.add_row(name, Text(value, "bold red" if name == "alerts" and value != _QUIET else ""))
        return table


_QUIET = "none"


def board_for(console: Console, *, silent: bool) -> Board:
    """What suits who watches."""
    if silent:
        return Board()
    return LiveBoard(console) if console.is_terminal else PlainBoard(console)


def rows_of(found: Look, books: Books, auditor: Auditor, partner: Partner, per_second: float) -> list[tuple[str, str]]:
    """The numbers of now, in words."""
    refused = sum(sent.refused for sent in books.sent.values())
    fresh = "" if found.freshness is None else f", results {found.freshness:.1f} s old"
    wrong = f"{len(auditor.wrong())} WRONG" if auditor.wrong() else "all as Python has them"
    return [
        ("users online", _pairs(found.online)),
        ("views in 5 minutes", _pairs(found.pages)),
        ("revenue", _pairs((key, f"{amount:,.2f}") for key, amount in found.revenue)),
        ("sensors", _pairs((key, f"{average}°") for key, average in found.sensors)),
        ("alerts", ", ".join(map(escape_control_characters, found.firing)) or _QUIET),
        ("dead letters", ", ".join(f"{group} {count}" for group, count, _ in found.dead_letters) or _QUIET),
        (
            "partner",
            f"{number(partner.calls)} calls delivered{f', {partner.too_soon} TOO SOON' if partner.too_soon else ''}, "
            f"{number(found.waiting)} wait at the gate, 429 to producers: {refused}",
        ),
        (
            "traffic",
            f"{number(sum(sent.events for sent in books.sent.values()))} events, {per_second:,.0f}/s, "
            f"{number(found.behind)} behind{fresh}",
        ),
        ("windows compared", f"{number(auditor.compared)}, {wrong}"),
    ]


def _pairs(pairs: Iterable[tuple[str, Any]]) -> str:
    return " · ".join(f"{escape_control_characters(key)} {value}" for key, value in pairs) or "not yet"
