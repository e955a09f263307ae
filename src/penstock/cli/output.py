"""Output of the commands: results on standard output, messages on standard error."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

#: An error message with more lines is cut to its first line, unless --verbose is given.
_SHORT_MESSAGE_LINES = 4
#: How often progress is printed if standard error is not a terminal.
_PROGRESS_SECONDS = 10.0


class Output:
    """Prints results, as tables or JSON, to standard output, and everything else to standard error."""

    def __init__(self, *, json: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        self.json = json
        self.quiet = quiet
        self.verbose = verbose

    @cached_property
    def console(self) -> Console:
        """Standard output."""
        from rich.console import Console

        return Console(highlight=False, emoji=False, markup=False)

    @cached_property
    def errors(self) -> Console:
        """Standard error."""
        from rich.console import Console

        return Console(stderr=True, highlight=False, emoji=False, markup=False)

    @property
    def is_terminal(self) -> bool:
        return self.console.is_terminal

    # Results

    def document(self, value: Any) -> None:
        """Print one JSON document."""
        import msgspec

        from penstock.core import json

        text = json.encode(value)
        self.text((msgspec.json.format(text, indent=2) if self.is_terminal else text).decode())

    def result(self, document: Any, text: str) -> None:
        """Print the result of a change: a JSON document with --json, otherwise a note."""
        if self.json:
            self.document(document)
        else:
            self.note(text)

    def listing(
        self,
        document: Any,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        right: Sequence[str] = (),
        empty: str,
        lines: bool = False,
    ) -> None:
        """Print a list: a table, or the hint ``empty`` if there are no rows.

        With --json, print a document, or with ``lines`` each element of the document on a line.
        """
        if self.json and lines:
            for part in document:
                self.line(part)
        elif self.json:
            self.document(document)
        elif rows:
            self.table(columns, rows, right=right)
        else:
            self.hint(empty)

    def line(self, value: Any) -> None:
        """Print a JSON document on one line."""
        from penstock.core import json

        self.text(json.encode(value).decode())

    def text(self, text: str) -> None:
        """Print text unchanged."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", right: Sequence[str] = ()
    ) -> None:
        """Print a table, with rules on a terminal, otherwise as aligned text. ``right`` names right-aligned columns."""
        if not self.is_terminal:
            self._plain_table(columns, rows, title, right)
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold")
        for column in columns:
            table.add_column(column, justify="right" if column in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(escape_control_characters(cell)) for cell in row))
        self.console.print(table)

    def _plain_table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], title: str, right: Sequence[str]
    ) -> None:
        from rich.cells import cell_len

        rows = [[escape_control_characters(cell) for cell in row] for row in rows]
        widths = [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]
        if title:
            self.text(title)
        for row in (columns, *rows):
            cells = []
            for column, cell, width in zip(columns, row, widths, strict=True):
                space = " " * (width - cell_len(cell))
                cells.append(space + cell if column in right else cell + space)
            self.text("  ".join(cells).rstrip())

    def fields(self, title: str, fields: Sequence[tuple[str, str]]) -> None:
        """Print pairs of name and value, one per line."""
        from rich.text import Text

        width = max((len(name) for name, _ in fields), default=0) + 2
        if title:
            self.console.print(Text(title, "bold"), soft_wrap=True)
        for name, value in fields:
            self.console.print(
                Text.assemble((f"  {name:<{width}}", "dim"), escape_control_characters(value)), soft_wrap=True
            )

    def section(self, title: str, text: str) -> None:
        """Print a title and indented text."""
        from rich.text import Text

        self.console.print(Text(title, "bold"), soft_wrap=True)
        for line in text.splitlines():
            self.console.print(Text("  " + escape_control_characters(line)), soft_wrap=True)

    # Messages

    def note(self, text: str) -> None:
        """Print to standard output what the command did, unless --quiet or --json is given."""
        if not (self.quiet or self.json):
            self.console.print(text, soft_wrap=True)

    def hint(self, text: str) -> None:
        """Print additional information to standard error, unless --quiet or --json is given."""
        if not (self.quiet or self.json):
            self.errors.print(text, style="dim", soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a warning to standard error."""
        self.errors.print(f"warning: {text}", style="yellow", soft_wrap=True)

    def error(self, error: Exception | str) -> None:
        """Print an error on one line, or with ``--verbose`` the whole message and its causes."""
        message = str(error).strip() or type(error).__name__
        lines = message.splitlines()
        if self.verbose:
            self._print_error(message)
            cause = error.__cause__ if isinstance(error, Exception) else None
            while cause is not None:
                self.errors.print(f"caused by {type(cause).__name__}: {cause}", style="dim", soft_wrap=True)
                cause = cause.__cause__
        elif len(lines) > _SHORT_MESSAGE_LINES:
            self._print_error(f"{lines[0].rstrip(':')} (--verbose shows more)")
        else:
            self._print_error(" ".join(message.split()))

    def _print_error(self, message: str) -> None:
        self.errors.print(f"error: {message}", style="red", soft_wrap=True)

    def confirm(self, question: str) -> None:
        """Ask a question; exit with 1 unless the answer is yes."""
        if not typer.confirm(question, err=True):
            raise typer.Exit(1)

    @contextmanager
    def spinner(self, text: str) -> Iterator[None]:
        """Show a spinner on a terminal while the block runs."""
        if self.quiet or self.json or not self.errors.is_terminal:
            yield
            return
        with self.errors.status(f"{text} …"):
            yield

    @contextmanager
    def progress(self) -> Iterator[Callable[[str], None]]:
        """Yield a function that shows progress on standard error: a line that changes on a terminal, otherwise a line
        every ten seconds."""
        if self.quiet or self.json:
            yield lambda text: None
            return
        if self.errors.is_terminal:
            with self.errors.status("") as status:
                yield status.update
            return
        printed_at = time.monotonic()

        def show(text: str) -> None:
            nonlocal printed_at
            if time.monotonic() - printed_at >= _PROGRESS_SECONDS:
                printed_at = time.monotonic()
                self.hint(text)

        yield show

    def configure_logging(self, level: str) -> None:
        """Log to standard error from ``level`` on. --verbose and --quiet override the level."""
        if self.verbose:
            level = "DEBUG"
        elif self.quiet:
            level = "ERROR"
        logging.basicConfig(
            format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING, handlers=[_StderrHandler()]
        )
        logging.getLogger("penstock").setLevel(level)
        # The pool warns of each connection that PostgreSQL has closed; penstock.db says what follows from it.
        logging.getLogger("psycopg.pool").setLevel("WARNING" if self.verbose else "ERROR")


class _StderrHandler(logging.StreamHandler[Any]):
    """Logs to the current sys.stderr, which a live table replaces: lines of another stream would garble it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def escape_control_characters(text: str) -> str:
    """Escape unprintable characters, which could control a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
