"""Compiles a join of two streams: ``a JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + INTERVAL '10 minutes'``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.statements.group_windows import parse_interval
from penstock.stream.statements.name_resolution import SYSTEM_COLUMNS, dotted, refuse_subquery
from penstock.stream.statements.relation import Relation, check_unique, select_item

_EXAMPLE = "a.k = b.k AND b.t BETWEEN a.t - INTERVAL '10 minutes' AND a.t + INTERVAL '10 minutes'"
_MICROS = 10**6
_INEQUALITIES = exp.GT | exp.GTE | exp.LT | exp.LTE


@dataclass
class JoinCondition:
    """The parts of ON."""

    #: Expressions of the left and of the right that are equal.
    keys: list[tuple[exp.Expr, exp.Expr]] = field(default_factory=list)
    #: The columns with the times of the left and of the right.
    times: tuple[exp.Column, exp.Column] | None = None
    #: The least and the greatest difference of the right's time and the left's, in microseconds.
    low: int | None = None
    high: int | None = None
    rest: list[exp.Expr] = field(default_factory=list)

    def add_bound(self, times: tuple[exp.Column, exp.Column], difference: int, is_low: bool) -> None:
        self.times = times
        if is_low:
            self.low = difference if self.low is None else max(self.low, difference)
        else:
            self.high = difference if self.high is None else min(self.high, difference)


def compile_stream_join(
    source: SqlSource, select: exp.Select, compile_table: Callable[[exp.Expr], Relation], rules: dict[str, Any]
) -> Relation:
    """Return the pairs of a SELECT over two streams. ``compile_table`` compiles a table or a subquery."""
    joins = select.args["joins"]
    if len(joins) > 1 or select.args.get("laterals"):
        raise source.error(
            joins[-1],
            "one statement joins two streams: INSERT the pairs INTO a queue, and join that with the next; "
            "a reference table is joined in a view or subquery of one side",
        )
    join = joins[0]
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER") or join.args.get("method"):
        raise source.error(join, f"streams are joined by JOIN or LEFT JOIN; {_alternative(side, kind)}")
    relations = (compile_table(select.args["from_"].this), compile_table(join.this))
    shared = sorted(set(relations[0].stream.sources) & set(relations[1].stream.sources))
    if shared:
        copy = f"INSERT INTO `{shared[0]}-copy` SELECT * FROM `{shared[0]}`"  # noqa: S608 - an example for the user
        raise source.error(
            join, f"both sides read {shared[0]!r}: copy the events of one side into a queue of its own first, {copy}"
        )
    sides = _JoinSides(source, relations)
    condition = sides.parse_condition(join)
    if side == "LEFT" and condition.rest:
        raise source.error(
            condition.rest[0],
            "in a LEFT JOIN, ON has the keys and the times: put conditions on one side into a subquery, "
            "LEFT JOIN (SELECT ... FROM b WHERE ...) b",
        )
    left, right = (
        relation.stream.map(", ".join(f"`{name}`" for name in sides.columns_of(number, select, condition)))
        for number, relation in enumerate(relations)
    )
    assert condition.times is not None  # noqa: S101 - parse_condition raises without
    stream = left.join(
        right,
        on=sides.keys(condition),
        within=(-(condition.low or 0) / _MICROS, (condition.high or 0) / _MICROS),
        how="left" if side == "LEFT" else "inner",
        event_time=tuple(sides.event_time(number, column) for number, column in enumerate(condition.times)),
        **rules,
    )
    where = select.args.get("where")
    for node in (*condition.rest, *([] if where is None else [where.this])):
        stream = stream.filter(sides.resolve_pair(node).sql("spark"))
    columns = [select_item(source, item, sides.resolve_pair) for item in select.expressions]
    check_unique(source, select, columns)
    stream = stream.map(", ".join(column.to_sql() for column in columns))
    names = tuple(column.name for column in columns)
    return Relation(stream, names, "", dict.fromkeys(names))


def _alternative(side: str, kind: str) -> str:
    """Return what to write instead of an unsupported join."""
    if kind == "SEMI":
        return "for LEFT SEMI, write JOIN and select columns of the left: one row for each pair"
    if kind == "ANTI":
        return "for LEFT ANTI, write LEFT JOIN and WHERE of a column of the right IS NULL"
    if side == "RIGHT":
        return "for RIGHT, swap the sides"
    if side == "FULL":
        return (
            "for FULL, write a LEFT JOIN each way into one queue, and of the second the rows that are NULL on the right"
        )
    return f"write ON {_EXAMPLE}"


class _JoinSides:
    """Resolves columns to the left stream, side 0, or to the right one, side 1."""

    def __init__(self, source: SqlSource, relations: tuple[Relation, Relation]) -> None:
        self._source = source
        self._relations = relations
        self._names = [relation.alias.lower() for relation in relations]
        if self._names[0] == self._names[1]:
            raise source.error(0, f"both sides are called {self._names[0]!r}: name them, FROM a x JOIN a y")

    def _side(self, column: exp.Column) -> int:
        first = column.parts[0].name.lower()
        if len(column.parts) < 2 or first not in self._names:
            raise self._source.error(
                column,
                f"of which stream is {column.sql('spark')}? Write {self._names[0]}.{column.name} or "
                f"{self._names[1]}.{column.name}",
            )
        return self._names.index(first)

    def _sides(self, node: exp.Expr) -> set[int]:
        return {self._side(column) for column in node.find_all(exp.Column)}

    def parse_condition(self, join: exp.Join) -> JoinCondition:
        condition = JoinCondition()
        if join.args.get("using"):
            raise self._source.error(join, f"say how far apart the times may be: JOIN ... ON {_EXAMPLE}")
        on = join.args.get("on")
        for node in [] if on is None else list(on.flatten() if isinstance(on, exp.And) else [on]):
            node = node.unnest()
            if isinstance(node, exp.Between):
                self._parse_between(node, condition)
            elif isinstance(node, exp.EQ) and self._compares_sides(node):
                is_left_first = self._sides(node.this) == {0}
                left, right = (node.this, node.expression) if is_left_first else (node.expression, node.this)
                condition.keys.append((left, right))
            elif not isinstance(node, _INEQUALITIES) or not self._parse_bound(node, node, condition):
                self._sides(node)
                condition.rest.append(node)
        where = on if on is not None else join
        if not condition.keys:
            raise self._source.error(where, f"say which fields both have in common: ON {_EXAMPLE}")
        if condition.low is None or condition.high is None:
            raise self._source.error(
                where,
                "say how far apart the times may be, before and after, or events would be stored for ever: "
                f"ON {_EXAMPLE}",
            )
        if condition.low > condition.high:
            raise self._source.error(where, "no two times match: the end is before the beginning")
        return condition

    def _compares_sides(self, node: exp.EQ) -> bool:
        one, other = self._sides(node.this), self._sides(node.expression)
        return len(one) == 1 and len(other) == 1 and one != other

    def _parse_between(self, node: exp.Between, condition: JoinCondition) -> None:
        bounds = (
            exp.GTE(this=node.this, expression=node.args["low"]),
            exp.LTE(this=node.this, expression=node.args["high"]),
        )
        for bound in bounds:
            if not self._parse_bound(bound, node, condition) and node not in condition.rest:
                condition.rest.append(node)

    def _parse_bound(self, node: Any, whole: exp.Expr, condition: JoinCondition) -> bool:
        """Return whether an inequality compares the times of both sides; if it does, add it as a bound.

        ``whole`` is the BETWEEN of which the inequality is a half, or the inequality itself.
        """
        one, other = self._parse_time(node.this), self._parse_time(node.expression)
        if one is None or other is None or self._side(one[0]) == self._side(other[0]):
            return False
        is_greater = isinstance(node, exp.GT | exp.GTE)
        # As the difference of the right's time and the left's.
        if self._side(one[0]) == 1:
            difference, is_low, times = other[1] - one[1], is_greater, (other[0], one[0])
        else:
            difference, is_low, times = one[1] - other[1], not is_greater, (one[0], other[0])
        if isinstance(node, exp.GT | exp.LT):
            difference += 1 if is_low else -1
        if condition.times is not None and condition.times != times:
            condition.rest.append(whole)
            return True
        # Columns that are compared without an interval are times only if another part compares them with one.
        is_bare = whole is node and one[1] == other[1] == 0 and condition.times is None
        if is_bare and not _has_interval_for(whole, times):
            return False
        condition.add_bound(times, difference, is_low)
        return True

    def _parse_time(self, node: Any) -> tuple[exp.Column, int] | None:
        """Return a column and the microseconds that are added to it."""
        node = node.unnest()
        if isinstance(node, exp.Column):
            return node, 0
        if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
            inner = self._parse_time(node.this)
            if inner is None:
                return None
            micros = parse_interval(self._source, node.expression)
            return inner[0], inner[1] + (micros if isinstance(node, exp.Add) else -micros)
        return None

    def columns_of(self, number: int, select: exp.Select, condition: JoinCondition) -> list[str]:
        """Return the columns of a side that the statement uses."""
        names: dict[str, None] = {}
        parts = [*select.expressions, *condition.rest, *[node for pair in condition.keys for node in pair]]
        if select.args.get("where") is not None:
            parts.append(select.args["where"])
        for part in parts:
            for column in part.find_all(exp.Column):
                if isinstance(column.this, exp.Star):
                    raise self._source.error(column, "in a join name the columns instead of *")
                if self._side(column) == number:
                    names[column.parts[1].name] = None
        columns = self._relations[number].columns
        for name in names:
            if name in SYSTEM_COLUMNS:
                raise self._source.error(
                    select, f"{name} is not available after a join: select it in a subquery, AS a name"
                )
            if columns is not None and name not in columns:
                raise self._source.error(
                    select, f"{self._names[number]} has no column {name!r}; it has {', '.join(columns)}"
                )
        return list(names)

    def keys(self, condition: JoinCondition) -> dict[str, str]:
        keys: dict[str, str] = {}
        for left, right in condition.keys:
            text = self._resolve(left, []).sql("spark")
            if text in keys:
                raise self._source.error(left, f"{text} is compared twice: write it once, and the other in WHERE")
            keys[text] = self._resolve(right, []).sql("spark")
        return keys

    def resolve_pair(self, node: exp.Expr) -> exp.Expr:
        """Return an expression over a pair, which has the fields ``left`` and ``right``."""
        return self._resolve(node, ["left", "right"])

    def _resolve(self, expression: exp.Expr, prefixes: list[str]) -> exp.Expr:
        """Return an expression with columns that have a prefix for their side instead of its name."""

        def change(node: exp.Expr) -> exp.Expr:
            refuse_subquery(self._source, node)
            if not isinstance(node, exp.Column):
                return node
            side = self._side(node)
            path = [part.copy() for part in node.parts[1:]]
            return dotted([exp.to_identifier(prefixes[side], quoted=True), *path] if prefixes else path)

        return expression.copy().transform(change)

    def event_time(self, number: int, column: exp.Column) -> Any:
        """Return the event time of a side, as ``join(event_time=...)`` takes it."""
        name = column.parts[1].name
        if name.lower() in ("_time", "_appended_at"):
            return True if name.lower() == "_time" else None
        origin = self._relations[number].origin(name)
        if origin is None:
            raise self._source.error(
                column,
                f"the time of a join is a field as the events have it, and {column.sql('spark')} is computed: compare "
                "the field, or _time for the time that the producer gave",
            )
        return ".".join([origin, *(part.name for part in column.parts[2:])])


def _has_interval_for(node: exp.Expr, times: tuple[exp.Column, exp.Column]) -> bool:
    """Return whether another part of ON compares the same two columns with an interval."""
    on: Any = node
    while isinstance(on.parent, exp.And | exp.Paren):
        on = on.parent
    names = {time.sql() for time in times}
    return any(
        {column.sql() for column in part.find_all(exp.Column)} == names and part.find(exp.Interval) is not None
        for part in (on.flatten() if isinstance(on, exp.And) else [])
    )
