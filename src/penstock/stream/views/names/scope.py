"""Scopes resolve a name in a SELECT: to a column of one of its relations, or one of the SELECT around it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.views.names.time_windows import TimeWindow
from penstock.stream.views.names.view_clauses import is_bare_function, non_deterministic_error
from penstock.stream.views.select_tree import function_name, quoted, relation_column

#: Columns of every event beside its fields.
SYSTEM_COLUMNS = ("_key", "_time", "_partition", "_offset")


class RelationKind(Enum):
    QUEUE = auto()
    VIEW = auto()
    REFERENCE = auto()
    SUBQUERY = auto()
    #: The elements of arrays: LATERAL VIEW, or the windows of a row.
    LATERAL = auto()


@dataclass
class NamedRelation:
    """A relation of a SELECT."""

    #: The name with which the SELECT qualifies columns, in lower case.
    name: str
    #: A name that is unique in the whole statement. It qualifies columns after names are resolved.
    alias: str
    kind: RelationKind
    #: The columns as they are written; None if they are not known.
    columns: tuple[str, ...] | None
    #: The name of the queue, the view or the reference table.
    source_name: str = ""
    #: Columns that are computed from others, by name in lower case.
    computed: dict[str, exp.Expr] = field(default_factory=dict)
    #: The sliding windows of HOP and window(). The start of each is the column window_start.
    sliding: TimeWindow | None = None
    #: The time of TUMBLE and HOP. Rows without a time are in no window.
    window_time: exp.Expr | None = None
    #: How the fields of a queue without declared columns are written, by name in lower case.
    spellings: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> str | None:
        """Return how a column is written; None if there is none of that name, or the columns are not known."""
        if name.lower() in self.computed:
            return name.lower()
        known = [*(self.columns or ()), *(SYSTEM_COLUMNS if self.kind is RelationKind.QUEUE else ())]
        if name in known:
            return name
        return next((column for column in known if column.lower() == name.lower()), None)


class Scope:
    """The relations that a SELECT can refer to."""

    def __init__(self, source: SqlSource, parent: Scope | None = None) -> None:
        self.relations: list[NamedRelation] = []
        self._source = source
        self._parent = parent
        #: The columns of JOIN ... USING by name in lower case.
        self.merged: dict[str, exp.Expr] = {}

    def add(self, relation: NamedRelation, node: exp.Expr) -> None:
        if any(relation.name == other.name for other in self.relations):
            raise self._source.error(
                node, f"two relations are called {relation.name}: give one another name, JOIN {relation.name} AS other"
            )
        self.relations.append(relation)

    def relation(self, name: str) -> NamedRelation | None:
        """Return the relation of a name, of this SELECT or of one around it."""
        for relation in self.relations:
            if relation.name == name.lower():
                return relation
        return None if self._parent is None else self._parent.relation(name)

    def has_column(self, name: str) -> bool | None:
        """Return whether this SELECT's relations have a column; None if that is not known."""
        if name.lower() in self.merged or any(relation.find(name) is not None for relation in self.relations):
            return True
        return None if any(relation.columns is None for relation in self.relations) else False

    def resolve(self, node: exp.Column) -> exp.Expr:
        """Return a column with the unique alias of its relation, or a field inside such a column."""
        parts = node.parts
        relation = self.relation(parts[0].name) if len(parts) > 1 else None
        if relation is not None:
            return self._path(self._field(relation, parts[1]), parts[2:])
        return self._path(self._unqualified(node), parts[1:])

    def _unqualified(self, node: exp.Column) -> exp.Expr:
        first = node.parts[0]
        name: str = first.name
        if name.lower() in self.merged:
            return self.merged[name.lower()].copy()
        known = [relation for relation in self.relations if relation.find(name) is not None]
        known = [relation for relation in known if not self._is_system_column(name, relation)] or known
        if len(known) > 1:
            names = " or ".join(f"{relation.name}.{name}" for relation in known)
            raise self._source.error(node, f"{name} is a column of several relations: write {names}")
        if known:
            return self._field(known[0], first)
        unknown = [relation for relation in self.relations if relation.columns is None]
        if not unknown and is_bare_function(name):
            raise self._source.error(node, non_deterministic_error(name))
        if len(unknown) == 1:
            return self._field(unknown[0], first)
        if unknown:
            names = " or ".join(f"{relation.name}.{name}" for relation in unknown)
            raise self._source.error(
                node,
                f"qualify {name}, because it is not known which events have it: write {names}, or declare the columns "
                "with CREATE QUEUE name (column type, ...)",
            )
        if self._parent is not None:
            return self._parent._unqualified(node)
        raise self._source.error(node, f"there is no column {name!r}; {_list_columns(self.relations)}")

    @staticmethod
    def _is_system_column(name: str, relation: NamedRelation) -> bool:
        return name.lower() in SYSTEM_COLUMNS and name not in (relation.columns or ())

    def _field(self, relation: NamedRelation, identifier: exp.Expr) -> exp.Expr:
        name: str = identifier.name
        if isinstance(identifier, exp.Star):
            raise self._source.error(identifier, "* stands alone in a select list: name the column")
        if name.lower() in relation.computed:
            return relation.computed[name.lower()].copy()
        spelling = relation.find(name)
        if spelling is None and relation.columns is not None:
            raise self._source.error(identifier, f"there is no column {name!r}; {_list_columns([relation])}")
        if spelling is None:
            spelling = relation.spellings.setdefault(name.lower(), name)
            if spelling != name:
                raise self._source.error(
                    identifier, f"a field is written {spelling} and {name}: write it as the events have it"
                )
        result = relation_column(relation.alias, spelling)
        result.this.meta.update(identifier.meta)
        return result

    @staticmethod
    def _path(node: exp.Expr, fields: Iterable[exp.Expr]) -> exp.Expr:
        for field_name in fields:
            node = access(node, field_name)
        return node


def access(node: exp.Expr, field_name: exp.Expr) -> exp.Expr:
    """Return a field of a struct. The one of a struct that is written out is its expression."""
    if not isinstance(field_name, exp.Identifier):
        return exp.Dot(this=node, expression=field_name)
    for part in node.expressions if function_name(node) == "struct" else ():
        if part.alias.lower() == field_name.name.lower():
            result: exp.Expr = part.unalias()
            return result
    return exp.Dot(this=node, expression=quoted(field_name.name))


def _list_columns(relations: list[NamedRelation]) -> str:
    known = [f"{relation.name} has {', '.join(relation.columns)}" for relation in relations if relation.columns]
    more = any(relation.kind is RelationKind.QUEUE for relation in relations)
    hint = ". Where events have more fields than are declared, end the list with *: CREATE QUEUE name (..., *)"
    return "; ".join(known) + (hint if more else "")
