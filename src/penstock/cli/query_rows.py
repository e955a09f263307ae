"""Prints the result of a query, once or whenever it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime
from decimal import Decimal
from typing import Any

from penstock.cli.output import Output
from penstock.cli.times import format_time
from penstock.client.transport import Transport
from penstock.engine.results.result_reader import QueryRows, RowColumn, RowRequest, read_rows

_WATCH_SECONDS = 1.0
_NUMBER_TYPES = ("bigint", "integer", "numeric", "double precision", "real")


def print_rows(out: Output, rows: QueryRows, limit: int) -> None:
    """Print the last rows as a table, or with --json all rows, one per line."""
    if out.json:
        for row in rows:
            out.line(row)
    elif not rows:
        out.hint("There are no such windows.")
    else:
        _print_table(out, rows, limit)


async def watch_rows(out: Output, transport: Transport, request: RowRequest, limit: int) -> None:
    """Print the rows whenever they change, until Ctrl-C. On a terminal, the new rows replace the old ones."""
    seen: QueryRows | None = None
    with out.console.screen(hide_cursor=True) if out.is_terminal and not out.json else nullcontext():
        while True:
            rows = await read_rows(transport.result_rows, request)
            if rows != seen:
                if out.json:
                    changed = [row for row in rows if seen is None or row not in seen]
                    print_rows(out, QueryRows(changed, rows.columns), limit)
                else:
                    if out.is_terminal:
                        out.console.clear()
                    print_rows(out, rows, limit)
                seen = rows
            await asyncio.sleep(_WATCH_SECONDS)


def _print_table(out: Output, rows: QueryRows, limit: int) -> None:
    columns = _shown_columns(rows.columns)
    numbers = [column.name for column in columns if column.type in _NUMBER_TYPES]
    cells = [[_format(row[column.name]) for column in columns] for row in rows[-limit:]]
    out.table([column.name for column in columns], cells, right=numbers)
    if len(rows) > limit:
        out.hint(f"The last {limit:,} of {len(rows):,} rows; `-n` prints more, `--json` all.")


def _shown_columns(columns: Sequence[RowColumn]) -> list[RowColumn]:
    # The second column may repeat the key under the name of its field.
    repeats_key = len(columns) > 1 and columns[1].type == "text" and columns[2].name == "window_start"
    return [column for position, column in enumerate(columns) if not (position == 0 and repeats_key)]


def _format(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value if isinstance(value, str) else str(value)
