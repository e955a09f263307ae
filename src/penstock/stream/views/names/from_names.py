"""Resolves the names of FROM, JOIN and LATERAL VIEW."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.stream.views.names.relations import add_lateral
from penstock.stream.views.names.scope import NamedRelation, Scope
from penstock.stream.views.names.view_clauses import check_clauses
from penstock.stream.views.select_tree import function_name, quoted

if TYPE_CHECKING:
    from penstock.stream.views.names.qualify import Qualifier

_GENERATORS = ("explode", "explode_outer", "posexplode", "posexplode_outer")


class FromNames:
    """Adds the relations of a SELECT to its scope, in the order in which they are written."""

    def __init__(
        self,
        statement: Qualifier,
        scope: Scope,
        parent: Scope | None,
        resolve: Callable[[exp.Expr], exp.Expr],
    ) -> None:
        self._statement = statement
        self._source = statement.source
        self._scope = scope
        self._parent = parent
        self._resolve = resolve

    def qualify(self, select: exp.Select) -> None:
        first = select.args["from_"].this
        self._scope.add(self._statement.relation(first, self._parent), first)
        has_cross = False
        for join in select.args.get("joins") or []:
            # sqlglot does not tell a comma, which binds less than JOIN, from CROSS JOIN.
            if has_cross and join.side in ("RIGHT", "FULL"):
                raise self._source.error(
                    join, f"{join.side} JOIN after a comma or CROSS JOIN: write the join in a subquery"
                )
            has_cross = has_cross or join.kind == "CROSS"
            self._qualify_join(join)
        for lateral in select.args.get("laterals") or []:
            self._qualify_lateral(lateral)

    def _qualify_join(self, join: Any) -> None:
        check_clauses(self._source, join)
        if join.method:
            raise self._source.error(join, f"{join.method} JOIN is not supported: write JOIN ... ON ...")
        node = join.this
        relation = self._statement.relation(node, self._parent)
        # The table function of a window is replaced by its table.
        node = join.this
        before = list(self._scope.relations)
        self._scope.add(relation, node)
        if join.args.get("using"):
            self._qualify_using(join, relation, before)
        elif join.args.get("on") is not None:
            join.set("on", self._resolve(join.args["on"]))
        elif join.side or join.kind in ("SEMI", "ANTI"):
            name = " ".join(part for part in (join.side, join.kind) if part)
            raise self._source.error(join, f"{name} JOIN needs a condition: write ON a.id = b.id")
        if join.kind in ("SEMI", "ANTI"):
            self._scope.relations.remove(relation)

    def _qualify_using(self, join: Any, relation: NamedRelation, before: list[NamedRelation]) -> None:
        left_scope, right_scope = Scope(self._source), Scope(self._source)
        left_scope.relations, left_scope.merged = before, self._scope.merged
        right_scope.relations = [relation]
        condition: exp.Expr | None = None
        for identifier in join.args["using"]:
            left = left_scope.resolve(exp.Column(this=identifier.copy()))
            right = right_scope.resolve(exp.Column(this=identifier.copy()))
            equal = exp.EQ(this=left.copy(), expression=right.copy())
            condition = equal if condition is None else exp.And(this=condition, expression=equal)
            merged = right if join.side == "RIGHT" else left
            if join.side == "FULL":
                merged = exp.Anonymous(this="coalesce", expressions=[left, right])
            self._scope.merged[identifier.name.lower()] = merged
        join.set("using", None)
        join.set("on", condition)

    def _qualify_lateral(self, lateral: Any) -> None:
        check_clauses(self._source, lateral)
        call, alias = lateral.this, lateral.args["alias"]
        function = function_name(call)
        if function not in _GENERATORS or len(call.expressions) != 1:
            raise self._source.error(lateral, "LATERAL VIEW takes explode(array), explode(map) or posexplode(array)")
        names = tuple(name.name for name in alias.args.get("columns") or [])
        is_position = function.startswith("pos")
        names = names or (("pos", "col") if is_position else ("col",))
        if len(names) > 2 or (is_position and len(names) != 2):
            raise self._source.error(lateral, "name the columns: explode(values) t AS value")
        call.set("expressions", [self._resolve(call.expressions[0])])
        relation = add_lateral(self._statement, alias.name or "t", names)
        self._scope.add(relation, lateral)
        columns = [quoted(name) for name in names]
        lateral.set("alias", exp.TableAlias(this=quoted(relation.alias), columns=columns))
