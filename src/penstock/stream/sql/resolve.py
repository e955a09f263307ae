"""What a name in a SELECT means: a field of what it reads, or a name that the SELECT itself gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.stream.sql.parser import Source

#: What every event has beside its fields.
OF_EVENTS = {"_key": "__key", "_time": "timestamp_micros(__time)", "_appended_at": "__appended_at"}


@dataclass(frozen=True)
class Fields:
    """The fields that a SELECT reads."""

    #: What the events are called, and the tables that they are joined with, of which less is known; in lower case.
    stream: str
    tables: tuple[str, ...] = ()
    #: The fields of the events, as they are spelt; None: nobody said.
    known: tuple[str, ...] | None = None
    #: Whether there is nothing beside the events.
    is_alone: bool = True

    def parts(self, column: Any) -> list[Any]:
        """The field that a column is, and those inside it: without the name of its table."""
        parts = list(column.parts)
        return parts[1:] if self.table(column) else parts

    def table(self, column: Any) -> str:
        """The table that a column says it is of."""
        first = column.parts[0].name.lower()
        return first if len(column.parts) > 1 and first in (self.stream, *self.tables) else ""

    def of(self, name: str) -> str:
        """A field, so written that it can be nothing else."""
        return f"{self.stream or 'events'}.{name}"

    def spelled(self, name: str) -> str | None:
        """The name as the field has it, however it is written; None, if it is not known."""
        known = self.known or ()
        if name in known:
            return name
        alike = [each for each in known if each.lower() == name.lower()]
        return alike[0] if len(alike) == 1 else None

    def has(self, name: str, named: Any) -> bool | None:
        """Whether a name that the SELECT gives to an expression is a field as well; None, if nobody knows."""
        from sqlglot import exp

        if self.spelled(name) is not None:
            return True
        if self.known is not None and self.is_alone:
            return False
        # upper(name) AS name: there is such a field.
        fields = (self.parts(column)[0].name.lower() for column in named.find_all(exp.Column))
        return True if name.lower() in fields else None

    def check(self, source: Source, column: Any) -> str | None:
        """The spelling of a column's field, if it is known; one that is not there is refused."""
        field, table = self.parts(column)[0].name, self.table(column)
        if self.known is None or table in self.tables or field.lower() in OF_EVENTS or field.startswith("__"):
            return None
        found = self.spelled(field)
        if found is None and (self.is_alone or table):
            raise source.refuse(
                column,
                f"there is no column {field!r}; there are {', '.join(self.known)}. Where the events of a queue have "
                "more fields than are declared, end the list with *: CREATE QUEUE name (column type, ..., *)",
            )
        return found


def with_names(source: Source, items: Sequence[Any], fields: Fields) -> list[Any]:
    """The items of a select list, with names that earlier ones were given replaced by what they stand for.

    A field comes before such a name. Where it is not known which of them is meant, it is refused.
    """
    from sqlglot import exp

    given: dict[str, Any] = {}

    def meant(part: Any) -> Any:
        if not isinstance(part, exp.Column) or part.table or part.name.lower() not in given:
            return part
        named = given[part.name.lower()]
        is_field = fields.has(part.name, named)
        if is_field is None:
            raise source.refuse(
                part,
                f"is {part.name} a field of the events, or what this SELECT calls so? Write {fields.of(part.name)} for "
                f"the field, or {named.sql('spark')} again; or declare the fields with CREATE QUEUE name (column type, "
                "...)",
            )
        return part if is_field else exp.paren(named.copy(), copy=False)

    found = []
    for item in items:
        item = item.transform(meant) if given else item
        found.append(item)
        if item.alias:
            given[item.alias.lower()] = item.unalias()
    return found


def is_star(node: Any) -> bool:
    """Whether it is ``*`` or ``orders.*``."""
    from sqlglot import exp

    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))
