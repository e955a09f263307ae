"""The calls ``window(time, size [, slide])`` and ``calendar_window(time, unit, ...)`` of a SELECT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.stream.views.names.calendar_windows import CalendarTimeWindow
from penstock.stream.views.names.relations import add_lateral
from penstock.stream.views.names.scope import access
from penstock.stream.views.names.time_windows import TimeWindow, parse_window_call
from penstock.stream.views.select_tree import join_conjuncts, quoted, relation_column, split_conjuncts

if TYPE_CHECKING:
    from penstock.stream.views.names.qualify import Qualifier


class WindowCalls:
    """Replaces the calls by their values. Equal sliding windows of a SELECT are one."""

    def __init__(self, statement: Qualifier, select: exp.Select) -> None:
        self._statement = statement
        self._select = select
        #: The value of the window in GROUP BY, which the columns ``window.start`` and ``window.end`` are fields of.
        self.grouped: exp.Expr | None = None
        self._sliding: dict[tuple[exp.Expr, int, int], exp.Expr] = {}
        self._times: list[exp.Expr] = []

    def check(self, node: exp.Expr) -> None:
        """Refuse other functions of windows by name."""
        parse_window_call(self._statement.source, node)

    def value(self, node: Any, time: exp.Expr) -> exp.Expr:
        """Return the struct of a call, given its resolved time."""
        node.expressions[0].replace(time)
        window = parse_window_call(self._statement.source, node)
        if window is None:
            raise TypeError(f"{node.sql('spark')} is no call of window")
        if isinstance(window, TimeWindow) and window.is_sliding:
            value = window.value(self._sliding_start(window))
        else:
            value = window.value(self._tumbling_start(window))
        value.meta["is_window"] = True
        value.meta["is_resolved"] = True
        return value

    def group_key(self, node: exp.Expr) -> exp.Expr:
        """Return the expression by which a window is grouped: its start, of which its end is a function."""
        return access(node, quoted("start")) if node.meta.get("is_window") else node

    def add_clauses(self) -> None:
        """Remove rows without a time, and add one row for each sliding window."""
        if self._times:
            where = self._select.args.get("where")
            known = [exp.Not(this=exp.Is(this=time, expression=exp.Null())) for time in self._times]
            condition = join_conjuncts([*known, *split_conjuncts(where)])
            self._select.set("where", exp.Where(this=condition))
        for start in self._sliding.values():
            alias = start.args["table"].name
            self._select.append("laterals", exp.Lateral(alias=exp.TableAlias(this=quoted(alias))))

    def _tumbling_start(self, window: TimeWindow | CalendarTimeWindow) -> exp.Expr:
        if window.time not in self._times:
            self._times.append(window.time.copy())
        return window.tumbling_start()

    def _sliding_start(self, window: TimeWindow) -> exp.Expr:
        key = (window.time, window.size_us, window.slide_us)
        if key not in self._sliding:
            relation = add_lateral(self._statement, "window", ("start",))
            relation.sliding = window
            start = relation_column(relation.alias, "start")
            start.meta["is_resolved"] = True
            self._sliding[key] = start
        return self._sliding[key].copy()
