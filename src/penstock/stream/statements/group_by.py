"""Compiles a SELECT with a GROUP BY over a window to a key, a window, aggregates and output fields."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from sqlglot import exp

from penstock.core.errors import InvalidSql
from penstock.stream.aggregates import WindowAggregate, check_aggregate
from penstock.stream.checks.arguments import RESERVED_COLUMNS
from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.statements.group_windows import WINDOW_FUNCTIONS, GroupWindow, parse_group_window
from penstock.stream.statements.name_resolution import SYSTEM_COLUMNS, InputFields, dotted_name, is_star
from penstock.stream.statements.window_aggregates import compile_aggregate

if TYPE_CHECKING:
    from penstock.stream.definition import Definition

NEEDS_WINDOW = (
    "a stream has no end, so it is grouped by a window of time as well: "
    "add window(event_time, '5 seconds'), session_window(...) or date_trunc('day', event_time) to GROUP BY. For a "
    "result that never ends, write CREATE MATERIALIZED VIEW name AS SELECT ..."
)

_ONE_GROUPING = "a stream is grouped in one way: write a statement for each"
_GROUPING_CLAUSES = ("grouping_sets", "cube", "rollup", "totals", "all")


class GroupByCompiler:
    """Compiles one SELECT.

    ``resolve`` returns an expression over the fields of the events. ``origin`` returns the field of the pushed events
    that a column is.
    """

    def __init__(
        self,
        source: SqlSource,
        select: exp.Select,
        resolve: Callable[[exp.Expr], exp.Expr],
        origin: Callable[[str], str | None],
        fields: InputFields,
    ) -> None:
        self._source = source
        self._select = select
        self._resolve = resolve
        self._origin = origin
        self._fields = fields
        self._aliases: dict[str, exp.Expr] = {item.alias: item.this for item in select.expressions if item.alias}
        #: The parts of the key by name.
        self._groups: dict[str, exp.Expr] = {}
        self._window, self._window_node = self._parse_groups()
        self._aggregates: dict[str, WindowAggregate] = {}
        #: The names of the aggregates by their descriptions.
        self._names: dict[str, str] = {}

    def compile(self, events: Definition, rules: dict[str, Any]) -> Definition:
        outputs = self._compile_outputs()
        having = self._select.args.get("having")
        condition = None
        if having is not None:
            self._check_having(having.this)
            condition = self._over_window(having.this)
        keys = [self._text(node) for node in self._groups.values()]
        stream = events if keys == ["__key"] else events.key_by(*keys or ["''"])
        stream = stream._add_window(self._window.window, {"event_time": self._event_time(), **rules})
        stream = replace(stream, distinguishes_null_key=len(self._groups) == 1 and stream.key is not None)
        aggregates = self._aggregates or {"n": check_aggregate("n", "count(*)")}
        stream = stream.aggregate(aggregates).select(outputs)
        return stream if condition is None else stream.having(condition)

    def _text(self, expression: exp.Expr) -> str:
        return self._resolve(expression).sql("spark")

    # GROUP BY

    def _parse_groups(self) -> tuple[GroupWindow, exp.Expr]:
        """Collect the parts of the key, and return the window with its expression."""
        group = self._select.args.get("group")
        if group is not None and any(group.args.get(name) for name in _GROUPING_CLAUSES):
            raise self._source.error(group, _ONE_GROUPING)
        window: tuple[GroupWindow, exp.Expr] | None = None
        for node in [] if group is None else group.expressions:
            if isinstance(node, exp.Cube | exp.Rollup | exp.GroupingSets):
                raise self._source.error(node, _ONE_GROUPING)
            expression = self._group_expression(node)
            parsed = parse_group_window(self._source, expression)
            if parsed is None:
                self._groups[self._group_name(expression)] = expression
            elif window is not None:
                raise self._source.error(node, "a stream is grouped by one window: write a statement for each")
            else:
                window = parsed, expression
        if window is None:
            raise self._source.error(group if group is not None else self._select, NEEDS_WINDOW)
        return window

    def _group_expression(self, node: exp.Expr) -> exp.Expr:
        """Return the expression for a number or an alias in GROUP BY."""
        if isinstance(node, exp.Literal) and not node.is_string:
            index = int(node.this) - 1 if node.is_int else -1
            if not 0 <= index < len(self._select.expressions):
                raise self._source.error(node, f"there is no column {node.this}")
            return cast(exp.Expr, self._select.expressions[index].unalias())
        aliased = self._find_alias(node)
        if aliased is None or aliased == node:
            return node
        if not self._fields.has(node.name, aliased):
            return aliased
        # As in SQL, a field comes before an alias.
        if parse_group_window(self._source, aliased) is not None:
            raise self._source.error(
                node,
                f"{node.name} is a field of the events here, and not the window with that alias: write "
                f"{aliased.sql('spark')}, or give the window another alias",
            )
        return node

    def _find_alias(self, node: Any) -> exp.Expr | None:
        """Return the expression whose alias a column is."""
        if not isinstance(node, exp.Column) or node.table:
            return None
        similar = [expression for alias, expression in self._aliases.items() if alias.lower() == node.name.lower()]
        return self._aliases.get(node.name, similar[0] if len(similar) == 1 else None)

    def _check_having(self, condition: exp.Expr) -> None:
        """Raise InvalidSql if HAVING uses a name that is a group and also an alias of another expression."""
        for column in condition.find_all(exp.Column):
            aliased = self._find_alias(column)
            if aliased is None or aliased == column or column.find_ancestor(exp.AggFunc):
                continue
            if any(isinstance(group, exp.Column) and self._is_same(column, group) for group in self._groups.values()):
                raise self._source.error(
                    column,
                    f"is {column.name} the group or the alias? Write {self._fields.qualified(column.name)} or "
                    f"{aliased.sql('spark')}",
                )

    def _group_name(self, expression: exp.Expr) -> str:
        name = next((alias for alias, aliased in self._aliases.items() if aliased == expression), None)
        if name is None and isinstance(expression, exp.Column):
            name = expression.name
        name = name or f"group_{len(self._groups) + 1}"
        while name in self._groups:
            name = f"{name}_"
        return name

    def _event_time(self) -> Any:
        """Return the event time of the windows, as ``window_tumbling(event_time=...)`` takes it."""
        node = self._window.time
        if isinstance(node, exp.Column):
            resolved = self._resolve(node)
            if resolved == SYSTEM_COLUMNS["_time"]:
                return True
            name = dotted_name(resolved) or ""
            if name.lower() == "__appended_at":
                return None
            first, dot, rest = name.partition(".")
            field = self._origin(first)
            if field is not None:
                return f"{field}{dot}{rest}"
        raise self._source.error(
            node,
            f"the time of a window is a field as the events have it, and {node.sql('spark')} is computed: write "
            "window(event_time, ...), or window(_time, ...) for the time that the producer gave and "
            "window(_appended_at, ...) for the time of the append",
        )

    # The select list

    def _compile_outputs(self) -> dict[str, str]:
        outputs: dict[str, str] = {}
        for item in self._select.expressions:
            expression = item.unalias()
            if is_star(expression):
                raise self._source.error(item, "a grouped SELECT names its columns: * would be those of the events")
            name = item.alias or self._default_name(expression)
            if name in outputs:
                raise self._source.error(item, f"two columns are called {name!r}: name one with AS")
            aggregate = compile_aggregate(self._source, expression, self._resolve)
            outputs[name] = self._over_window(item) if aggregate is None else self._add_aggregate(aggregate, name)
        return outputs

    def _default_name(self, node: Any) -> str:
        if isinstance(node, exp.Column):
            return str(node.name)
        if parse_group_window(self._source, node) is not None:
            return "window"
        if isinstance(node, exp.Dot):
            return str(node.expression.name)
        return _identifier(node.sql("spark"))

    def _over_window(self, item: exp.Expr) -> str:
        """Return SQL over a closed window, in which groups and aggregates are columns."""
        whole = item.unalias()

        def change(node: exp.Expr) -> exp.Expr:
            if self._is_window(node):
                return exp.Var(this=self._window.value)
            bound = self._window_bound(node)
            if bound is not None:
                return exp.column(bound)
            for name, group in self._groups.items():
                if self._is_same(node, group):
                    return exp.column(self._add_aggregate(WindowAggregate("max", self._text(group)), name))
            aggregate = compile_aggregate(self._source, node, self._resolve)
            if aggregate is not None:
                alias = next((alias for alias, aliased in self._aliases.items() if aliased == node), None)
                return exp.column(self._add_aggregate(aggregate, alias or _identifier(node.sql("spark"))))
            if isinstance(node, exp.Column):
                aliased = self._find_alias(node)
                if aliased is not None and aliased != whole:
                    return exp.paren(aliased.copy().transform(change), copy=False)
                raise self._source.error(
                    node,
                    f"{node.sql('spark')} is neither grouped by nor aggregated: add it to GROUP BY, or write "
                    f"max({node.sql('spark')})",
                )
            if isinstance(node, exp.Query | exp.Window):
                raise self._source.error(node, "a grouped SELECT takes no subquery and no OVER: use a join instead")
            return node

        return whole.copy().transform(change).sql("spark")

    def _add_aggregate(self, aggregate: WindowAggregate, name: str) -> str:
        """Return the name of an aggregate. Equal aggregates are computed once."""
        text = aggregate.describe()
        if text not in self._names:
            while name.lower() in RESERVED_COLUMNS or any(name.lower() == other.lower() for other in self._aggregates):
                name = f"{name}_"
            self._aggregates[name] = aggregate
            self._names[text] = name
        return self._names[text]

    def _is_same(self, node: exp.Expr, group: exp.Expr) -> bool:
        """Return whether an expression is a group, perhaps with other qualifiers."""
        if node == group:
            return True
        if isinstance(node, exp.Identifier | exp.Literal | exp.Star) or type(node) is not type(group):
            return False
        if node.find(exp.AggFunc):
            return False
        try:
            return self._text(node) == self._text(group)
        except InvalidSql:
            return False  # it refers to an alias

    def _is_window(self, node: exp.Expr) -> bool:
        """Return whether an expression is the window: the same call, ``window``, or the alias of the call."""
        if node == self._window_node:
            return True
        if isinstance(node, exp.Column) and not node.table:
            aliased = self._find_alias(node)
            is_call = isinstance(self._window_node, exp.Anonymous)
            return (
                node.name.lower() in WINDOW_FUNCTIONS and is_call if aliased is None else aliased == self._window_node
            )
        if isinstance(node, exp.Anonymous | exp.TimestampTrunc):
            other = parse_group_window(self._source, node)
            if other is not None:
                if other.window == self._window.window and self._text(other.time) == self._text(self._window.time):
                    return True
                raise self._source.error(node, "this window is not the one of GROUP BY: write the same in both")
        return False

    def _window_bound(self, node: exp.Expr) -> str | None:
        """Return ``window_start`` for ``w.start`` and for ``window(...).start``."""
        if isinstance(node, exp.Column) and not node.table:
            return node.name.lower() if node.name.lower() in ("window_start", "window_end") else None
        if isinstance(node, exp.Column):
            bound, window = node.name.lower(), exp.column(node.table)
        elif isinstance(node, exp.Dot):
            bound, window = node.expression.name.lower(), node.this
        else:
            return None
        return f"window_{bound}" if bound in ("start", "end") and self._is_window(window) else None


def _identifier(text: str) -> str:
    """Return a name for an expression without an alias."""
    name = re.sub(r"\W+", "_", text.lower()).strip("_")[:50]
    return name if name and not name[0].isdigit() else f"c_{name}"
