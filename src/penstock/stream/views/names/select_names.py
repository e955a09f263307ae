"""Resolves the names of one SELECT, in the order in which its clauses see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.stream.views.expressions import remove_parentheses
from penstock.stream.views.names.from_names import FromNames
from penstock.stream.views.names.named_windows import replace_named_windows
from penstock.stream.views.names.scope import Scope, access
from penstock.stream.views.names.select_aliases import SelectAliases
from penstock.stream.views.names.stars import expand_star, is_star
from penstock.stream.views.names.time_windows import WINDOW_FUNCTIONS
from penstock.stream.views.names.view_clauses import check_clauses, check_function, grouping_error
from penstock.stream.views.names.window_calls import WindowCalls
from penstock.stream.views.select_tree import aggregate_calls, call, function_name, quoted, replace_nodes, unwrap

if TYPE_CHECKING:
    from penstock.stream.views.names.qualify import Qualifier

_GROUPINGS: dict[type[exp.Expr], str] = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE", exp.GroupingSets: "GROUPING SETS"}


class SelectNames:
    """Resolves a SELECT in place. Its items become aliases, and every column has the alias of its relation."""

    def __init__(self, statement: Qualifier, select: exp.Select, parent: Scope | None) -> None:
        self._statement = statement
        self._source = statement.source
        self._select = select
        self._parent = parent
        self._scope = Scope(statement.source, parent)
        self._aliases = SelectAliases(statement.source, self._scope)
        self._windows = WindowCalls(statement, select)

    def qualify(self, is_named: bool) -> tuple[str, ...]:
        """Resolve the SELECT and return the names of its columns."""
        select = self._select
        check_clauses(self._source, select)
        distinct = select.args.get("distinct")
        if distinct is not None and distinct.args.get("on") is not None:
            raise self._source.error(
                distinct,
                "DISTINCT ON: write SELECT ... QUALIFY row_number() OVER (PARTITION BY key ORDER BY time DESC) = 1",
            )
        if not select.expressions:
            raise self._source.error(select, "the SELECT has no columns: write them after SELECT")
        if select.args.get("from_") is None:
            raise self._source.error(select, "the SELECT reads nothing: write FROM and the name of a queue or a view")
        replace_named_windows(self._source, select)
        FromNames(self._statement, self._scope, self._parent, self._resolve).qualify(select)
        self._find_group_window()
        items = [resolved for item in select.expressions for resolved in self._qualify_item(item, is_named)]
        names = tuple(item.alias for item in items)
        if is_named:
            self._check_unique(items)
        self._aliases.define(items)
        select.set("expressions", items)
        if select.args.get("where") is not None:
            select.args["where"].set("this", self._resolve(select.args["where"].this))
        self._qualify_group(items)
        for clause in ("having", "qualify"):
            if select.args.get(clause) is not None:
                condition = select.args[clause].this
                select.args[clause].set("this", self._resolve(self._aliases.expand(condition)))
        self._qualify_order(items)
        self._windows.add_clauses()
        return names

    def _resolve(self, node: exp.Expr) -> exp.Expr:
        return remove_parentheses(replace_nodes(node, self._replacement))

    def _replacement(self, part: Any) -> exp.Expr | None:
        """Return the resolved node for a part of an expression; None if its own parts are to be resolved."""
        if part.meta.get("is_resolved"):
            resolved: exp.Expr = part
            return resolved
        if isinstance(part, exp.Query):
            return self._qualify_subquery(part)
        if isinstance(part, exp.Column):
            return self._qualify_column(part)
        is_window = function_name(part) in WINDOW_FUNCTIONS
        if isinstance(part, exp.Dot) and function_name(part.this) in WINDOW_FUNCTIONS:
            return access(replace_nodes(part.this, self._replacement), part.expression)
        if is_window and part.expressions:
            return self._windows.value(part, self._resolve(part.expressions[0]))
        if isinstance(part, exp.Any) and not isinstance(part.parent, exp.Binary):
            # The aggregate any(x). Elsewhere ANY follows a comparison or LIKE.
            return call("bool_or", replace_nodes(part.this, self._replacement))
        if isinstance(part, exp.Alias) and function_name(part.parent) != "struct":
            raise self._source.error(
                part, f"{part.alias}: only a whole column of the select list, or of struct, has a name"
            )
        if isinstance(part, exp.Func):
            check_function(self._source, part)
            self._windows.check(part)
        if isinstance(part, exp.Anonymous):
            # The names of functions are not case-sensitive, so that COUNT(*) is equal to count(*).
            part.set("this", str(part.this).lower())
        return None

    def _qualify_subquery(self, node: Any) -> exp.Expr:
        query: exp.Expr = unwrap(node)
        self._statement.qualify(query, self._scope, is_named=False)
        query.meta["is_resolved"] = True
        if query is not node:
            query.pop()
        return query

    def _qualify_column(self, node: exp.Column) -> exp.Expr:
        name = node.parts[0].name
        window = self._windows.grouped if name.lower() == "window" else None
        if window is not None and self._scope.relation(name) is None and not self._scope.has_column(name):
            result = window.copy()
            for field_name in node.parts[1:]:
                result = access(result, field_name)
        else:
            result = self._scope.resolve(node)
        for column in result.find_all(exp.Column):
            column.meta["is_resolved"] = True
        return result

    def _find_group_window(self) -> None:
        """Find the window(...) of GROUP BY, which other clauses call ``window``."""
        group = self._select.args.get("group")
        for node in group.expressions if group is not None else []:
            if function_name(node) in WINDOW_FUNCTIONS:
                self._windows.grouped = self._resolve(node)
            else:
                self._windows.check(node)

    def _qualify_item(self, item: Any, is_named: bool) -> list[exp.Expr]:
        if is_star(item):
            return expand_star(self._source, item, self._scope)
        if isinstance(item, exp.Aliases):
            raise self._source.error(item, "an item of the select list has one name: x AS name")
        expression = item.unalias()
        written = item.args["alias"] if isinstance(item, exp.Alias) else None
        if written is None and isinstance(expression, exp.Column | exp.Dot):
            written = expression.this if isinstance(expression, exp.Column) else expression.expression
        if not isinstance(written, exp.Identifier):
            if is_named:
                raise self._source.error(item, f"name the column: {item.sql('spark')} AS name")
            written = quoted(f"column_{item.index}")
        resolved = self._resolve(self._aliases.expand_item(expression))
        if isinstance(item, exp.Alias):
            self._aliases.add(written.name, resolved)
        alias = quoted(written.name)
        alias.meta.update(written.meta)
        return [exp.Alias(this=resolved, alias=alias)]

    def _check_unique(self, items: list[exp.Expr]) -> None:
        names = set[str]()
        for item in items:
            if item.alias.lower() in names:
                raise self._source.error(item, f"two columns are called {item.alias!r}: name one with AS")
            names.add(item.alias.lower())

    def _qualify_group(self, items: list[exp.Expr]) -> None:
        group = self._select.args.get("group")
        if group is None:
            return
        check_clauses(self._source, group)
        nodes: list[exp.Expr] = []
        for node in group.expressions:
            nodes += node.expressions if isinstance(node, exp.Tuple) else [node]
        resolved: list[exp.Expr] = []
        for node in nodes:
            if type(node) in _GROUPINGS:
                raise self._source.error(node, grouping_error(_GROUPINGS[type(node)]))
            if isinstance(node, exp.Column) and node.sql("spark").upper() in ("ALL", "`ALL`"):
                resolved += [item.unalias().copy() for item in items if not aggregate_calls(item)]
            else:
                resolved.append(self._ordinal(node, items, "GROUP BY") or self._resolve(self._aliases.expand(node)))
        group.set("expressions", [self._windows.group_key(node) for node in resolved])

    def _qualify_order(self, items: list[exp.Expr]) -> None:
        order = self._select.args.get("order")
        for ordered in order.expressions if order is not None else []:
            node = ordered.this
            resolved = self._ordinal(node, items, "ORDER BY")
            ordered.set("this", resolved or self._resolve(self._aliases.expand(node, prefer_alias=True)))

    def _ordinal(self, node: exp.Expr, items: list[exp.Expr], clause: str) -> exp.Expr | None:
        """Return the item of the select list that a number stands for."""
        if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdecimal():
            return None
        if not 1 <= int(node.name) <= len(items):
            raise self._source.error(
                node, f"{clause} {node.name}: the select list has {len(items)} columns; write a number of them"
            )
        result: exp.Expr = items[int(node.name) - 1].unalias().copy()
        return result
