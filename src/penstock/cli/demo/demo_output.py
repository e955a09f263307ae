"""The output of a demo: steps with live numbers on a terminal, plain lines elsewhere, and a table of checks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.output import Output, escape_control_characters

#: How often the numbers of a step are printed where the output is no terminal.
_REPORT_SECONDS = 10.0


@dataclass(slots=True)
class Step:
    """A step of a demo while it runs."""

    out: Output
    #: Printed when the step has ended.
    result: str = ""
    rows: Sequence[tuple[str, str]] = ()
    _printed_at: float = field(default_factory=time.monotonic)

    def show(self, *rows: tuple[str, str]) -> None:
        """Show the current numbers."""
        self.rows = rows
        if not self.out.is_terminal and time.monotonic() - self._printed_at >= _REPORT_SECONDS:
            self._printed_at = time.monotonic()
            for name, value in rows:
                self.out.note(f"   {name}: {value}")

    def render(self) -> RenderableType:
        """Return the current numbers as a table."""
        table = Table.grid(padding=(0, 1))
        table.add_column(style="cyan", no_wrap=True)
        # A column without no_wrap: rich narrows it before the names, and each text cuts itself.
        table.add_column()
        for name, value in self.rows:
            table.add_row(f"   {name}", Text(escape_control_characters(value), no_wrap=True, overflow="ellipsis"))
        return table


@contextmanager
def step(out: Output, title: str, description: str) -> Iterator[Step]:
    """Run a step: print its title, its numbers while it runs, and its result."""
    current = Step(out)
    out.note(f"== {title}: {description}")
    if out.is_terminal and not (out.json or out.quiet):
        with Live(get_renderable=current.render, console=out.console, refresh_per_second=4, transient=True):
            yield current
    else:
        yield current
    if current.result:
        out.note(f"   {current.result}")


@dataclass(frozen=True, slots=True)
class Check:
    """A comparison of an expected value with the one found."""

    what: str
    expected: str
    found: str

    @property
    def holds(self) -> bool:
        return self.expected == self.found


def check_count(what: str, expected: int, found: int) -> Check:
    return Check(what, f"{expected:,}", f"{found:,}")


def checks_document(checks: Sequence[Check]) -> list[dict[str, Any]]:
    return [{**asdict(check), "holds": check.holds} for check in checks]


def print_checks(out: Output, checks: Sequence[Check]) -> None:
    """Print the checks, and an error if one does not hold."""
    rows = [(check.what, check.expected, check.found, "yes" if check.holds else "NO") for check in checks]
    out.table(("check", "expected", "found", "holds"), rows, title="Checks", right=("expected", "found"))
    if not all(check.holds for check in checks):
        out.error("some checks failed: see the lines with NO")
