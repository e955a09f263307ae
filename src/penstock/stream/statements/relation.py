"""The events that a part of a statement returns, and the columns of a select list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.statements.name_resolution import InputFields, dotted_name, is_star

if TYPE_CHECKING:
    from penstock.stream.definition import Definition


class SelectedColumn(NamedTuple):
    """A column of a select list: its name, and its expression over the fields of the events."""

    name: str
    expression: exp.Expr

    def to_sql(self) -> str:
        return f"{self.expression.sql('spark')} AS `{self.name}`"


@dataclass(frozen=True)
class Relation:
    """The events that a part of a statement returns."""

    stream: Definition
    #: The selected or declared columns, if they are known.
    columns: tuple[str, ...] | None
    alias: str
    #: The field of the pushed events that each column is, None if it is computed. None: columns are fields.
    origins: Mapping[str, str | None] | None = None

    def origin(self, column: str) -> str | None:
        """Return the field of the pushed events that a column is."""
        return column if self.origins is None else self.origins.get(column)

    def origin_of(self, expression: exp.Expr) -> str | None:
        """Return the field of the pushed events that an expression is; None if it is computed."""
        name = dotted_name(expression)
        return None if name is None else self.origin(name)

    def origin_in_join(self, expression: exp.Expr) -> str | None:
        """Return the same for a join with reference tables, in which fields may be qualified with ``stream``."""
        name = dotted_name(expression)
        if name is None or ("." in name and not name.startswith("stream.")):
            return None
        return self.origin(name.removeprefix("stream."))

    def fields(self, source: SqlSource, select: exp.Select) -> InputFields:
        """Return the fields that a SELECT from this relation reads."""
        tables = [join.this.alias or join.this.name for join in select.args.get("joins") or []]
        tables += [lateral.alias for lateral in select.args.get("laterals") or []]
        return InputFields(source, self.alias.lower(), tuple(name.lower() for name in tables), self.columns)

    def project(self, columns: list[SelectedColumn], origin: Callable[[exp.Expr], str | None], stream: Any) -> Relation:
        """Return the relation of some columns, which ``stream`` computes."""
        names = tuple(column.name for column in columns)
        return Relation(stream, names, self.alias, {column.name: origin(column.expression) for column in columns})


def table_name(table: exp.Table) -> str:
    """Return the name of a table with its schema: the name of a queue or of a reference table."""
    return ".".join(part.name for part in table.parts)


def select_item(source: SqlSource, item: Any, resolve: Callable[[exp.Expr], exp.Expr]) -> SelectedColumn:
    """Return an item of a select list, which has to have a name."""
    expression = item.unalias()
    if is_star(expression):
        raise source.error(item, "in a join name the columns: * would select some of them twice")
    name = item.alias or (expression.name if isinstance(expression, exp.Column) else "")
    if not name:
        raise source.error(item, f"name the column: {item.sql('spark')} AS name")
    return SelectedColumn(name, resolve(expression))


def check_unique(source: SqlSource, select: exp.Select, columns: list[SelectedColumn]) -> None:
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise source.error(select, f"two columns are called {name!r}: name one with AS")
