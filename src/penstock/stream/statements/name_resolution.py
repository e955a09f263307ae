"""Resolves a name in a SELECT: to a field of its input, or an alias that the SELECT defines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource

#: Columns of every event beside its fields.
SYSTEM_COLUMNS: dict[str, exp.Expr] = {
    "_key": exp.column("__key"),
    # As text: sqlglot would print the name of the function in upper case.
    "_time": exp.Var(this="timestamp_micros(__time)"),
    "_appended_at": exp.column("__appended_at"),
}


@dataclass(frozen=True)
class InputFields:
    source: SqlSource
    #: The name of the stream, and of the tables that it is joined with, in lower case.
    stream: str
    tables: tuple[str, ...] = ()
    #: The fields of the events as they are written; None if they are not known.
    known: tuple[str, ...] | None = None

    @property
    def is_alone(self) -> bool:
        return not self.tables

    def path(self, column: exp.Column) -> list[exp.Expr]:
        """Return the field of a column and the fields inside it, without the name of its table."""
        parts = list(column.parts)
        return parts[1:] if self.table(column) else parts

    def table(self, column: exp.Column) -> str:
        """Return the name of the table with which a column is qualified."""
        first = column.parts[0].name.lower()
        return first if len(column.parts) > 1 and first in (self.stream, *self.tables) else ""

    def qualified(self, name: str) -> str:
        """Return a field with the name of the stream."""
        return f"{self.stream or 'events'}.{name}"

    def spelling(self, name: str) -> str | None:
        """Return how a field is written, whatever the case of the name; None if it is not known."""
        known = self.known or ()
        if name in known:
            return name
        similar = [field for field in known if field.lower() == name.lower()]
        return similar[0] if len(similar) == 1 else None

    def has(self, name: str, aliased: exp.Expr) -> bool | None:
        """Return whether the alias of an expression is also a field; None if that is not known."""
        if self.spelling(name) is not None:
            return True
        if self.known is not None and self.is_alone:
            return False
        # In upper(name) AS name, the expression refers to such a field.
        fields = (self.path(column)[0].name.lower() for column in aliased.find_all(exp.Column))
        return True if name.lower() in fields else None

    def check(self, column: exp.Column) -> str | None:
        """Return how the field of a column is written, if that is known. Raises InvalidSql for an unknown field."""
        field, table = self.path(column)[0].name, self.table(column)
        if self.known is None or table in self.tables or field.lower() in SYSTEM_COLUMNS or field.startswith("__"):
            return None
        spelling = self.spelling(field)
        if spelling is None and (self.is_alone or table):
            raise self.source.error(
                column,
                f"there is no column {field!r}; there are {', '.join(self.known)}. Where the events of a queue have "
                "more fields than are declared, end the list with *: CREATE QUEUE name (column type, ..., *)",
            )
        return spelling

    def resolve(self, expression: exp.Expr) -> exp.Expr:
        """Return an expression with columns as the stream has them, qualified only in a join."""

        def change(node: exp.Expr) -> exp.Expr:
            refuse_subquery(self.source, node)
            if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
                return node
            spelling, table = self.check(node), self.table(node)
            path = [part.copy() for part in self.path(node)]
            name = path[0].name.lower()
            if len(path) == 1 and name in SYSTEM_COLUMNS and table not in self.tables:
                return SYSTEM_COLUMNS[name].copy()
            if spelling is not None and spelling != path[0].name:
                path[0].set("this", spelling)
            if table and not self.is_alone:
                path.insert(0, exp.to_identifier("stream" if table == self.stream else table))
            return dotted(path)

        return expression.copy().transform(change)


def dotted(path: Sequence[exp.Expr]) -> exp.Expr:
    # exp.column refuses a part that is not a name, such as the list in a.(b, c).d.
    names = ("this", "table", "db", "catalog")
    column: exp.Expr = exp.Column(**dict(zip(names, reversed(path[:4]), strict=False)))
    for part in path[4:]:
        column = exp.Dot(this=column, expression=part)
    return column


def dotted_name(expression: exp.Expr) -> str | None:
    """Return the dotted name if an expression is a column or a field inside one."""
    parts = expression.parts if isinstance(expression, exp.Column | exp.Dot) else []
    is_name = bool(parts) and all(isinstance(part, exp.Identifier) for part in parts)
    return ".".join(part.name for part in parts) if is_name else None


def expand_aliases(items: Sequence[exp.Expr], fields: InputFields) -> list[Any]:
    """Return the items of a select list with the aliases of earlier items replaced by their expressions.

    A field comes before an alias. If it is not known whether there is such a field, the name is refused.
    """
    aliases: dict[str, exp.Expr] = {}

    def expand(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.table or node.name.lower() not in aliases:
            return node
        aliased = aliases[node.name.lower()]
        is_field = fields.has(node.name, aliased)
        if is_field is None:
            raise fields.source.error(
                node,
                f"is {node.name} a field of the events or an alias of this SELECT? Write "
                f"{fields.qualified(node.name)} for the field, or {aliased.sql('spark')} again; or declare the fields "
                "with CREATE QUEUE name (column type, ...)",
            )
        return node if is_field else exp.paren(aliased.copy(), copy=False)

    expanded = []
    for item in items:
        item = item.transform(expand) if aliases else item
        expanded.append(item)
        if item.alias:
            aliases[item.alias.lower()] = item.unalias()
    return expanded


def is_star(node: Any) -> bool:
    """Return whether an expression is ``*`` or ``orders.*``."""
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def refuse_subquery(source: SqlSource, node: exp.Expr) -> None:
    """Raise InvalidSql if a part of an expression is a subquery."""
    if isinstance(node, exp.Query):
        raise source.error(node, "a subquery inside an expression is not supported: join the table instead")
