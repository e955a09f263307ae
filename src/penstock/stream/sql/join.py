"""``FROM a JOIN b ON a.k = b.k AND b.t BETWEEN a.t - INTERVAL ... AND a.t + INTERVAL ...``: the builder's join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.stream.sql.intervals import length_of
from penstock.stream.sql.parser import Source

if TYPE_CHECKING:
    from penstock.stream.sql.select import Relation, Selecting

_EXAMPLE = "a.k = b.k AND b.t BETWEEN a.t - INTERVAL '10 minutes' AND a.t + INTERVAL '10 minutes'"


def _instead(side: str, kind: str) -> str:
    """What to write for a join that is not known."""
    if kind == "SEMI":
        return "for LEFT SEMI, write JOIN and select columns of the left: one row for each pair"
    if kind == "ANTI":
        return "for LEFT ANTI, write LEFT JOIN and WHERE of a column of the right IS NULL"
    if side == "RIGHT":
        return "for RIGHT, change their places"
    if side == "FULL":
        return "for FULL, write a LEFT JOIN each way into one queue, and of the second what IS NULL on the right"
    return f"write ON {_EXAMPLE}"


@dataclass
class _Condition:
    """What ON says, sorted."""

    on: list[tuple[Any, Any]] = field(default_factory=list)
    #: The times, and from how much to how much the right's is after the left's.
    times: tuple[Any, Any] | None = None
    low: int | None = None
    high: int | None = None
    rest: list[Any] = field(default_factory=list)


def joined(selecting: Selecting, select: Any, rules: dict[str, Any]) -> Relation:
    """The pairs that a SELECT over two streams gives."""
    from penstock.stream.sql.select import Relation, spelled_item

    source, joins = selecting.source, select.args["joins"]
    if len(joins) > 1 or select.args.get("laterals"):
        raise source.refuse(
            joins[-1],
            "one statement joins two streams: INSERT the pairs INTO a queue, and join that with the next; "
            "a reference table is joined in a view or subquery of one side",
        )
    join = joins[0]
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER") or join.args.get("method"):
        raise source.refuse(join, f"streams are joined by JOIN or LEFT JOIN; {_instead(side, kind)}")
    relations = (selecting._relation(select.args["from_"].this), selecting._relation(join.this))
    both = sorted(set(relations[0].stream.sources) & set(relations[1].stream.sources))
    if both:
        copy = f"INSERT INTO `{both[0]}-copy` SELECT * FROM `{both[0]}`"  # noqa: S608 - said to the user
        raise source.refuse(
            join, f"both sides read {both[0]!r}: bring what one of them needs into a queue of its own first, {copy}"
        )
    reading = _Reading(source, relations)
    condition = reading.condition(join)
    where = select.args.get("where")
    after = [*condition.rest, *([] if where is None else [where.this])]
    if side == "LEFT" and condition.rest:
        raise source.refuse(
            condition.rest[0],
            "in a LEFT JOIN, ON has the keys and the times: put what is asked of one side into a "
            "subquery, LEFT JOIN (SELECT ... FROM b WHERE ...) b",
        )
    streams = [
        relation.stream.map(", ".join(f"`{name}`" for name in reading.used(number, select, condition)))
        for number, relation in enumerate(relations)
    ]
    on: dict[str, str] = {}
    for one, other in condition.on:
        text = reading.alone(one)
        if text in on:
            raise source.refuse(one, f"{text} is compared twice: write it once, and the other in WHERE")
        on[text] = reading.alone(other)
    assert condition.times is not None  # noqa: S101 - checked when it was read
    times = tuple(reading.time(number, node) for number, node in enumerate(condition.times))
    low, high = condition.low or 0, condition.high or 0
    made = streams[0].join(
        streams[1],
        on=on,
        within=(-low / 10**6, high / 10**6),
        how="left" if side == "LEFT" else "inner",
        event_time=times,
        **rules,
    )
    for node in after:
        made = made.filter(reading.paired(node))
    columns = [spelled_item(source, item, reading.paired) for item in select.expressions]
    names = tuple(name for name, _ in columns)
    for name in names:
        if names.count(name) > 1:
            raise source.refuse(select, f"two columns are called {name!r}: name one with AS")
    made = made.map(", ".join(f"{text} AS `{name}`" for name, text in columns))
    return Relation(made, names, "", dict.fromkeys(names))


class _Reading:
    """Which side each column is of."""

    def __init__(self, source: Source, relations: tuple[Relation, Relation]) -> None:
        self._source = source
        self._relations = relations
        self._names = [relation.alias.lower() for relation in relations]
        if self._names[0] == self._names[1]:
            raise source.refuse(0, f"both sides are called {self._names[0]!r}: name them, FROM a x JOIN a y")

    def side(self, column: Any) -> int:
        """0 for the left, 1 for the right."""
        first = column.parts[0].name.lower()
        if len(column.parts) < 2 or first not in self._names:
            raise self._source.refuse(
                column,
                f"of which stream is {column.sql('spark')}? Write {self._names[0]}.{column.name} or "
                f"{self._names[1]}.{column.name}",
            )
        return self._names.index(first)

    def sides(self, node: Any) -> set[int]:
        from sqlglot import exp

        return {self.side(column) for column in node.find_all(exp.Column)}

    def condition(self, join: Any) -> _Condition:
        """What ON or USING says."""
        from sqlglot import exp

        found = _Condition()
        if join.args.get("using"):
            raise self._source.refuse(join, f"say how far apart the times may be: JOIN ... ON {_EXAMPLE}")
        on = join.args.get("on")
        for node in [] if on is None else list(on.flatten() if isinstance(on, exp.And) else [on]):
            node = node.unnest()
            if isinstance(node, exp.Between):
                self._bound(node, exp.GTE(this=node.this, expression=node.args["low"]), found)
                self._bound(node, exp.LTE(this=node.this, expression=node.args["high"]), found)
            elif isinstance(node, exp.EQ) and self._is_pair(node):
                left = node.this if self.sides(node.this) == {0} else node.expression
                found.on.append((left, node.expression if left is node.this else node.this))
            elif not (isinstance(node, exp.GT | exp.GTE | exp.LT | exp.LTE) and self._bound(node, node, found)):
                self.sides(node)
                found.rest.append(node)
        where = on if on is not None else join
        if not found.on:
            raise self._source.refuse(where, f"say which fields both have in common: ON {_EXAMPLE}")
        if found.low is None or found.high is None or found.times is None:
            raise self._source.refuse(
                where,
                f"say how far apart the times may be, before and after, or an event would wait for ever: ON {_EXAMPLE}",
            )
        if found.low > found.high:
            raise self._source.refuse(where, "no two times are like that: the end lies before the beginning")
        return found

    def _is_pair(self, node: Any) -> bool:
        one, other = self.sides(node.this), self.sides(node.expression)
        return len(one) == 1 and len(other) == 1 and one != other

    def _bound(self, whole: Any, node: Any, found: _Condition) -> bool:
        """Whether it compares a time of one side with one of the other; then it is noted."""
        from sqlglot import exp

        one, other = self._moment(node.this), self._moment(node.expression)
        if one is None or other is None or self.side(one[0]) == self.side(other[0]):
            if isinstance(whole, exp.Between) or not self._is_interval(node):
                found.rest += [whole] if isinstance(whole, exp.Between) and whole not in found.rest else []
                return isinstance(whole, exp.Between)
            return False
        more = isinstance(node, exp.GT | exp.GTE)
        # As `right's time - left's time`, at least or at most so much.
        if self.side(one[0]) == 1:
            difference, at_least, times = other[1] - one[1], more, (other[0], one[0])
        else:
            difference, at_least, times = one[1] - other[1], not more, (one[0], other[0])
        if isinstance(node, exp.GT | exp.LT):
            difference += 1 if at_least else -1
        if found.times is not None and found.times != times:
            found.rest.append(whole)
            return True
        # Two columns that are compared may be any numbers; they are times if an interval says so elsewhere.
        is_bare = not isinstance(whole, exp.Between) and one[1] == other[1] == 0 and found.times is None
        if is_bare and not self._says_interval(whole, times):
            return False
        found.times = times
        if at_least:
            found.low = difference if found.low is None else max(found.low, difference)
        else:
            found.high = difference if found.high is None else min(found.high, difference)
        return True

    def _is_interval(self, node: Any) -> bool:
        from sqlglot import exp

        return node.find(exp.Interval) is not None

    def _says_interval(self, node: Any, times: tuple[Any, Any]) -> bool:
        """Whether another part of ON compares the same two columns, with an interval."""
        from sqlglot import exp

        on = node
        while isinstance(on.parent, exp.And | exp.Paren):
            on = on.parent
        for other in on.flatten() if isinstance(on, exp.And) else []:
            columns = {column.sql() for column in other.find_all(exp.Column)}
            if columns == {time.sql() for time in times} and other.find(exp.Interval) is not None:
                return True
        return False

    def _moment(self, node: Any) -> tuple[Any, int] | None:
        """A column and how much is added to it."""
        from sqlglot import exp

        node = node.unnest()
        if isinstance(node, exp.Column):
            return node, 0
        if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
            inside = self._moment(node.this)
            sign = 1 if isinstance(node, exp.Add) else -1
            return None if inside is None else (inside[0], inside[1] + sign * length_of(self._source, node.expression))
        return None

    # What is spelt

    def used(self, number: int, select: Any, condition: _Condition) -> list[str]:
        """The columns of a side that the statement mentions."""
        from sqlglot import exp

        found: dict[str, None] = {}
        parts = [*select.expressions, *condition.rest, *[node for pair in condition.on for node in pair]]
        if select.args.get("where") is not None:
            parts.append(select.args["where"])
        for part in parts:
            for column in part.find_all(exp.Column):
                if isinstance(column.this, exp.Star):
                    raise self._source.refuse(column, "in a join name the columns that go on, instead of *")
                if self.side(column) == number:
                    found[column.parts[1].name] = None
        columns = self._relations[number].columns
        for name in found:
            if name.startswith("_") and name in ("_key", "_time", "_appended_at"):
                raise self._source.refuse(
                    select, f"{name} is not known after a join: select it in a subquery, AS a name"
                )
            if columns is not None and name not in columns:
                raise self._source.refuse(
                    select, f"{self._names[number]} has no column {name!r}; it has {', '.join(columns)}"
                )
        return list(found)

    def alone(self, node: Any) -> str:
        """An expression over one side, as that side has it."""
        return self._spelt(node, lambda column: column.parts[1:])

    def paired(self, node: Any) -> str:
        """An expression over a pair."""
        from sqlglot import exp

        def parts(column: Any) -> list[Any]:
            return [exp.to_identifier(("left", "right")[self.side(column)], quoted=True), *column.parts[1:]]

        return self._spelt(node, parts)

    def _spelt(self, node: Any, parts: Callable[[Any], Any]) -> str:
        from sqlglot import exp

        def change(part: Any) -> Any:
            if isinstance(part, exp.Query):
                raise self._source.refuse(part, "a subquery inside an expression is not known: join the table instead")
            if isinstance(part, exp.Column):
                self.side(part)
                return exp.Var(this=".".join(p.sql("spark") for p in parts(part)))
            return part

        return str(node.copy().transform(change).sql("spark"))

    def time(self, number: int, node: Any) -> Any:
        """What a stream calls the time of a side."""
        special = {"_time": True, "_appended_at": None}
        name = node.parts[1].name
        if name.lower() in special:
            return special[name.lower()]
        origin = self._relations[number].origin(name)
        if origin is None:
            raise self._source.refuse(
                node,
                f"a join goes by a field as the events have it, and {node.sql('spark')} is computed: compare the "
                "field, or _time for what the producer said",
            )
        return ".".join([origin, *(part.name for part in node.parts[2:])])
