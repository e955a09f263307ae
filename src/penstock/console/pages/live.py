"""The live board: a query's open windows, key by key, as they are now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nicegui import ui

from penstock.console.data.open_windows import Asked, Board, WindowedQuery, columns_of, read_board, windowed_queries
from penstock.console.page import Page, View, link
from penstock.console.polling import Follower
from penstock.console.widgets import parts
from penstock.console.widgets.parts import Cell, Column
from penstock.core import formatting

_ROWS = 50


async def build(view: View) -> None:
    """Make the page."""
    queries = await windowed_queries(view.database)
    if not queries:
        parts.nothing(
            "No query has windows yet",
            "The live board shows the open windows of a query, key by key, while they fill.",
            "penstock run app.py",
            icon="leaderboard",
        )
        return
    wanted = view.params.get("query")
    query = next((each for each in queries if each.name == wanted), None)
    if query is None and wanted is not None:
        parts.nothing(f"There is no query {wanted} with windows", "It may have been deleted, or not have begun.")
        return
    query = query or queries[0]
    with parts.element("nav", "ps-tabs", aria_label="Queries"):
        for each in queries:
            here = {"aria_current": "page"} if each is query else {}
            with parts.element("a", "ps-tab", href=link("/live", query=each.name), **here):
                parts.text(each.name)
    await _LiveBoard(view, query, await columns_of(view.database, query)).build()


class _LiveBoard:
    def __init__(self, view: View, query: WindowedQuery, columns: tuple[tuple[str, bool], ...]) -> None:
        self._view = view
        numbers = [name for name, is_number in columns if is_number]
        sort = numbers[0] if numbers else "key"
        self._asked = Asked(query, columns, sort, bool(numbers), "", 0, _ROWS)
        self._follower: Follower[Board] | None = None

    async def build(self) -> None:
        """Make the tiles and the table."""
        asked = self._asked
        with parts.tiles():
            self._keys = parts.tile("Keys now")
            self._sums = {name: parts.tile(f"{name}, all keys") for name in asked.numbers if asked.query.adds_up(name)}
            self._fresh = parts.tile("Updated")
        with parts.card(asked.query.name) as card:
            with parts.element("div", "ps-row ps-between"):
                search = ui.input(label="Search keys", on_change=lambda event: self._search(str(event.value or "")))
                search.props('outlined dense clearable debounce="300"').classes("ps-search")
                every = ui.switch("All open windows", on_change=lambda event: self._show_every(bool(event.value)))
                every.tooltip("Else of each key the one that counts now").classes("ps-switch")
                with parts.element("div", "ps-row"):
                    self._range = parts.text("", "ps-muted ps-small")
                    self._back = parts.button("Previous", lambda: self._turn(-1), icon="chevron_left")
                    self._forth = parts.button("Next", lambda: self._turn(1), icon="chevron_right")
            self._table = parts.table(f"Open windows of {asked.query.name}", self._columns())
            self._table.on_sort(self._sort)
        card.props["aria-label"] = f"Open windows of {asked.query.name}"
        await self._follow()

    def _columns(self) -> list[Column]:
        columns = [Column("Key", sort="key"), Column("Window", sort="window_end", classes="ps-roomy")]
        for name, is_number in self._asked.columns:
            columns.append(
                Column(name, is_number=is_number, sort=name, classes="ps-figure-column" if is_number else "")
            )
        # On a phone a tile says when, and there is no room for a line.
        return [
            *columns,
            Column("Course", classes="ps-course ps-desk"),
            Column("Updated", is_number=True, sort="updated_at", classes="ps-desk"),
        ]

    async def _follow(self) -> None:
        if self._follower is not None:
            self._follower.close()
            self._follower = None
        asked = self._asked
        self._table.sorted_by, self._table.is_descending = asked.sort, asked.is_descending
        database = self._view.database

        def show(board: Board) -> None:
            if asked is self._asked:
                self._show(board)

        follower = await self._view.follow(("live", asked), lambda: read_board(database, asked), show)
        if asked is self._asked:
            self._follower = follower
        else:
            follower.close()  # something else was asked for meanwhile

    async def _search(self, text: str) -> None:
        self._asked = replace(self._asked, search=text.strip(), offset=0)
        await self._follow()

    async def _show_every(self, every: bool) -> None:
        self._asked = replace(self._asked, every=every, offset=0)
        await self._follow()

    async def _sort(self, by: str) -> None:
        known = {"key", "window_end", "updated_at", *(name for name, _ in self._asked.columns)}
        if by in known:
            descending = not self._asked.is_descending if by == self._asked.sort else by != "key"
            self._asked = replace(self._asked, sort=by, is_descending=descending, offset=0)
            await self._follow()

    async def _turn(self, pages: int) -> None:
        self._asked = replace(self._asked, offset=max(0, self._asked.offset + pages * _ROWS))
        await self._follow()

    def _show(self, board: Board) -> None:
        self._keys.set(formatting.number(board.keys), f"{formatting.number(board.windows)} windows shown")
        for name, tile in self._sums.items():
            tile.set(formatting.compact(board.sums.get(name)), "now")
        self._fresh.set(self._view.times.ago(board.updated_at), self._view.times.clock(board.updated_at))
        first, last = self._asked.offset + 1, self._asked.offset + len(board.rows)
        shown = f"{formatting.number(first)}–{formatting.number(last)}" if board.rows else "none"
        self._range.set_text(f"{shown} of {formatting.number(board.matching)}")
        self._back.set_enabled(self._asked.offset > 0)
        self._forth.set_enabled(last < board.matching)
        self._table.set([self._row(board, row) for row in board.rows])

    def _row(self, board: Board, row: tuple[Any, ...]) -> list[Cell | str]:
        key, start, end, updated, *values = row
        times = self._view.times
        cells: list[Cell | str] = [
            Cell(key if key is not None else "(no key)", classes="ps-strong ps-key"),
            Cell(f"{times.clock(start)} – {times.clock(end)}", classes="ps-muted ps-nowrap ps-roomy"),
        ]
        for (name, is_number), value in zip(self._asked.columns, values, strict=True):
            most = board.largest.get(name)
            bar = float(value) / most if is_number and value is not None and most and most > 0 else None
            shown = formatting.number(float(value)) if is_number and value is not None else times.of(value)
            cells.append(Cell(shown, bar=bar))
        course = board.courses.get(key or "", ())
        return [*cells, Cell("", line=course), Cell(times.ago(updated), classes="ps-muted")]


PAGE = Page("/live", "Live board", "leaderboard", build, needs_all=True, short="Live")
