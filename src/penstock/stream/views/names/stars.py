"""Expands ``*`` and ``orders.*`` to columns."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.views.names.scope import NamedRelation, RelationKind, Scope
from penstock.stream.views.select_tree import quoted, relation_column


def is_star(node: Any) -> bool:
    """Return whether an expression is ``*`` or ``orders.*``."""
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def expand_star(source: SqlSource, item: Any, scope: Scope) -> list[exp.Expr]:
    """Return the columns of ``*`` or ``* EXCEPT (...)``. The columns of USING come first, once."""
    star = item if isinstance(item, exp.Star) else item.this
    for name in ("replace", "rename"):
        for part in star.args.get(name) or []:
            raise source.error(part, f"* {name.upper()}: name the columns instead")
    columns: dict[str, exp.Expr] = {}
    if isinstance(item, exp.Star):
        relations = scope.relations
        columns.update({_spelling(name, relations): column.copy() for name, column in scope.merged.items()})
        merged = set(scope.merged)
    else:
        relation = scope.relation(item.table)
        if relation is None:
            raise source.error(item, f"there is no relation {item.table}")
        relations, merged = [relation], set[str]()
    for relation in relations:
        if relation.columns is None:
            hint = f", or declare them with CREATE QUEUE {relation.source_name} (column type, ...)"
            hint = "" if relation.kind is RelationKind.REFERENCE else hint
            raise source.error(item, f"the columns of * are not known for {relation.name}: name them{hint}")
        for name in [*relation.columns, *relation.computed]:
            if name.lower() in merged:
                continue
            if name in columns:
                raise source.error(item, f"two columns of * are called {name!r}: name the columns instead")
            columns[name] = (
                scope.resolve(exp.column(name, relation.name))
                if relation.name
                else relation_column(relation.alias, name)
            )
    excluded = star.args.get("except_") or []
    for part in excluded:
        if part.name.lower() not in (name.lower() for name in columns):
            raise source.error(part, f"there is no column {part.name!r} to exclude; there are {', '.join(columns)}")
    names = {part.name.lower() for part in excluded}
    kept = {name: column for name, column in columns.items() if name.lower() not in names}
    for column in kept.values():
        for part in column.find_all(exp.Column):
            part.meta["is_resolved"] = True
    return [exp.Alias(this=column, alias=quoted(name)) for name, column in kept.items()]


def _spelling(name: str, relations: list[NamedRelation]) -> str:
    return next((found for relation in relations if (found := relation.find(name)) is not None), name)
