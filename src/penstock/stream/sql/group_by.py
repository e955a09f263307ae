"""A SELECT with a GROUP BY over a window, made the builder's key, window, aggregates and fields."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.core.errors import InvalidRequest, InvalidSql
from penstock.stream.aggregates import Aggregate, check_aggregate
from penstock.stream.sql.intervals import Spanned, window_of
from penstock.stream.sql.parser import Source
from penstock.stream.sql.resolve import Fields, is_star
from penstock.stream.validation import TAKEN
from penstock.stream.windows import Calendar, Session, Sliding, Tumbling

if TYPE_CHECKING:
    from penstock.stream.definition import Definition

NEEDS_WINDOW = (
    "a stream has no end, so it is grouped by a window of time as well: "
    "add window(event_time, '5 seconds'), session_window(...) or date_trunc('day', event_time) to GROUP BY"
)

_ONE_WAY = "a stream is grouped in one way: write a statement for each"


class Aggregating:
    """One such SELECT, over events that a stream gives.

    ``text`` spells an expression of the events; ``origin`` says which field, as it was pushed, a column is.
    """

    def __init__(
        self,
        source: Source,
        select: Any,
        text: Callable[[Any], str],
        origin: Callable[[str], str | None],
        fields: Fields,
    ) -> None:
        self._source = source
        self._origin = origin
        self._fields = fields
        self._select = select
        self._text = text
        self._aliases = {item.alias: item.this for item in select.expressions if item.alias}
        self._spanned: Spanned | None = None
        self._span_node: Any = None
        #: The parts of the key, by what they are called.
        self._groups: dict[str, Any] = {}
        self._aggregates: dict[str, Aggregate] = {}
        self._by_text: dict[str, str] = {}

    def stream(self, events: Definition, rules: dict[str, Any]) -> Definition:
        """The events, grouped."""
        self._read_groups()
        outputs = self._outputs()
        having = self._select.args.get("having")
        condition = None if having is None else self._over_windows(self._without_doubt(having.this))
        made = events
        if [self._text(node) for node in self._groups.values()] != ["__key"]:
            made = made.key_by(*[self._text(node) for node in self._groups.values()] or ["''"])
        if self._spanned is None:
            raise self._source.refuse(self._select, NEEDS_WINDOW)
        made = _windowed(made, self._spanned, {"event_time": self._event_time(), **rules})
        made = replace(made, null_apart=len(self._groups) == 1 and made.key is not None)
        aggregates = self._aggregates or {"n": check_aggregate("n", "count(*)")}
        made = made.aggregate(aggregates).select(outputs)
        return made if condition is None else made.having(condition)

    # GROUP BY

    def _read_groups(self) -> None:
        from sqlglot import exp

        group = self._select.args.get("group")
        for kind in ("grouping_sets", "cube", "rollup", "totals", "all"):
            if group is not None and group.args.get(kind):
                raise self._source.refuse(group, _ONE_WAY)
        for node in [] if group is None else group.expressions:
            if isinstance(node, exp.Cube | exp.Rollup | exp.GroupingSets):
                raise self._source.refuse(node, _ONE_WAY)
            meant = self._meant(node)
            spanned = window_of(self._source, meant)
            if spanned is None:
                self._groups[self._group_name(node, meant)] = meant
            elif self._spanned is not None:
                raise self._source.refuse(node, "a stream is grouped by one window: write a statement for each")
            else:
                self._spanned, self._span_node = spanned, meant
        if self._spanned is None:
            raise self._source.refuse(group if group is not None else self._select, NEEDS_WINDOW)

    def _meant(self, node: Any) -> Any:
        """What a number or an alias in GROUP BY stands for."""
        from sqlglot import exp

        if isinstance(node, exp.Literal) and not node.is_string:
            place = int(node.this) - 1 if node.is_int else -1
            if not 0 <= place < len(self._select.expressions):
                raise self._source.refuse(node, f"there is no column {node.this}")
            return self._select.expressions[place].unalias()
        named = self._named(node)
        if named is None or named == node:
            return node
        if not self._fields.has(node.name, named):
            return named
        # As in SQL, a field comes first.
        if window_of(self._source, named) is not None:
            raise self._source.refuse(
                node,
                f"{node.name} is a field of the events here, and not the window that is called so: write "
                f"{named.sql('spark')}, or call the window something else",
            )
        return node

    def _named(self, node: Any) -> Any:
        """What the SELECT calls by the name that a part is."""
        from sqlglot import exp

        if not isinstance(node, exp.Column) or node.table:
            return None
        alike = [what for alias, what in self._aliases.items() if alias.lower() == node.name.lower()]
        return self._aliases.get(node.name, alike[0] if len(alike) == 1 else None)

    def _without_doubt(self, having: Any) -> Any:
        """What HAVING asks, if it names nothing that is a group and something else as well."""
        from sqlglot import exp

        for column in having.find_all(exp.Column):
            named = self._named(column)
            if named is None or named == column or column.find_ancestor(exp.AggFunc):
                continue
            if any(isinstance(group, exp.Column) and self._same(column, group) for group in self._groups.values()):
                raise self._source.refuse(
                    column,
                    f"is {column.name} what is grouped by, or what the SELECT calls so? Write "
                    f"{self._fields.of(column.name)} or {named.sql('spark')}",
                )
        return having

    def _group_name(self, node: Any, meant: Any) -> str:
        from sqlglot import exp

        named = next((alias for alias, what in self._aliases.items() if what == meant), None)
        if named is None and isinstance(meant, exp.Column):
            named = meant.name
        named = named or f"group_{len(self._groups) + 1}"
        while named in self._groups:
            named = f"{named}_"
        return named

    def _event_time(self) -> Any:
        from sqlglot import exp

        assert self._spanned is not None  # noqa: S101 - the caller looked
        node = self._spanned.time
        if isinstance(node, exp.Column):
            text = self._text(node).replace("`", "")
            special = {"timestamp_micros(__time)": True, "__appended_at": None}
            if text.lower() in special:
                return special[text.lower()]
            first, dot, rest = text.partition(".")
            field = self._origin(first)
            if field is not None:
                return f"{field}{dot}{rest}"
        raise self._source.refuse(
            node,
            f"a window goes by a field as the events have it, and {node.sql('spark')} is computed: write "
            "window(event_time, ...), or window(_time, ...) for what the producer said and window(_appended_at, ...) "
            "for when it came",
        )

    # The select list

    def _outputs(self) -> dict[str, str]:

        outputs: dict[str, str] = {}
        for item in self._select.expressions:
            inside = item.unalias()
            if is_star(inside):
                raise self._source.refuse(item, "a grouped SELECT names its columns: * would be those of the events")
            name = item.alias or self._default_name(inside)
            if name in outputs:
                raise self._source.refuse(item, f"two columns are called {name!r}: name one with AS")
            aggregate = self._aggregate(inside)
            if aggregate is not None:
                outputs[name] = self._keep(inside, aggregate, name)
            else:
                outputs[name] = self._over_windows(item)
        return outputs

    def _default_name(self, node: Any) -> str:
        from sqlglot import exp

        if isinstance(node, exp.Column):
            return str(node.name)
        if window_of(self._source, node) is not None:
            return "window"
        if isinstance(node, exp.Dot):
            return str(node.expression.name)
        return _identifier(node.sql("spark"))

    def _over_windows(self, item: Any) -> str:
        """An expression with everything in it that is known of a closed window called by its name there."""
        from sqlglot import exp

        node = item.unalias()

        def change(part: Any) -> Any:
            if self._is_span(part):
                assert self._spanned is not None  # noqa: S101 - it is the span
                return _Raw(this=self._spanned.value)
            bound = self._bound_of(part)
            if bound is not None:
                return exp.column(bound)
            for name, group in self._groups.items():
                if self._same(part, group):
                    return exp.column(self._keep(group, Aggregate("max", self._text(group)), name))
            aggregate = self._aggregate(part)
            if aggregate is not None:
                return exp.column(self._keep(part, aggregate, self._alias_of(part)))
            if isinstance(part, exp.Column):
                named = self._named(part)
                if named is not None and named != node:
                    return exp.paren(named.copy().transform(change), copy=False)
                raise self._source.refuse(
                    part,
                    f"{part.sql('spark')} is neither grouped by nor aggregated: add it to GROUP BY, or write "
                    f"max({part.sql('spark')})",
                )
            if isinstance(part, exp.Query | exp.Window):
                raise self._source.refuse(part, "a grouped SELECT takes no subquery and no OVER: join what it needs")
            return part

        _Raw = _raw()
        return str(node.copy().transform(change).sql("spark"))

    def _alias_of(self, part: Any) -> str:
        named = next((alias for alias, what in self._aliases.items() if what == part), None)
        return named or _identifier(part.sql("spark"))

    def _same(self, part: Any, group: Any) -> bool:
        from sqlglot import exp

        if part == group:
            return True
        if not isinstance(part, exp.Expr) or isinstance(part, exp.Identifier | exp.Literal | exp.Star):
            return False
        if isinstance(part, exp.Column) != isinstance(group, exp.Column) or type(part) is not type(group):
            return False
        if part.find(exp.AggFunc):
            return False
        try:
            return self._text(part) == self._text(group)
        except InvalidSql:
            return False  # with a name that the SELECT gives

    def _is_span(self, part: Any) -> bool:
        """Whether it stands for the window: the call again, ``window``, or the alias of the call."""
        from sqlglot import exp

        if part == self._span_node:
            return True
        if isinstance(part, exp.Column) and not part.table:
            aliased = self._named(part)
            named = part.name.lower() in ("window", "session_window") and isinstance(self._span_node, exp.Anonymous)
            return aliased == self._span_node if aliased is not None else named
        if isinstance(part, exp.Anonymous | exp.TimestampTrunc):
            other = window_of(self._source, part)
            if other is not None and self._spanned is not None:
                if self._text(other.time) == self._text(self._spanned.time) and other.window == self._spanned.window:
                    return True
                raise self._source.refuse(part, "this window is not the one of GROUP BY: write the same in both places")
        return False

    def _bound_of(self, part: Any) -> str | None:
        """``window_start`` for ``w.start`` and ``window(...).start``."""
        from sqlglot import exp

        bound, of = "", None
        if isinstance(part, exp.Dot):
            bound, of = part.expression.name.lower(), part.this
        elif isinstance(part, exp.Column) and part.table:
            bound, of = part.name.lower(), exp.column(part.table)
        elif isinstance(part, exp.Column):
            return part.name.lower() if part.name.lower() in ("window_start", "window_end") else None
        return f"window_{bound}" if bound in ("start", "end") and of is not None and self._is_span(of) else None

    # Aggregates

    def _keep(self, node: Any, aggregate: Aggregate, name: str) -> str:
        """The name under which an aggregate is kept; the same one is kept once."""
        text = aggregate.describe()
        if text not in self._by_text:
            while name.lower() in TAKEN or any(name.lower() == other.lower() for other in self._aggregates):
                name = f"{name}_"
            self._aggregates[name] = aggregate
            self._by_text[text] = name
        return self._by_text[text]

    def _aggregate(self, node: Any) -> Aggregate | None:
        """The aggregate that a call stands for; None if it is none."""
        from sqlglot import exp

        condition = None
        if isinstance(node, exp.Filter):
            condition, node = self._text(node.expression.this), node.this
        if isinstance(node, exp.IgnoreNulls):
            raise self._source.refuse(node, "IGNORE NULLS is not known: read a subquery with WHERE x IS NOT NULL in it")
        said = _spelled(node, self._text)
        if said is None:
            if isinstance(node, exp.AggFunc) or (isinstance(node, exp.Anonymous) and node.name.lower() in _LIKE):
                raise self._source.refuse(
                    node,
                    f"there is no aggregate {node.sql('spark')}; there are count, count(DISTINCT ...), count_if, "
                    "sum, avg, min, max, stddev, first, last, approx_count_distinct, percentile and top_k",
                )
            return None
        within = next((part for part in node.find_all(exp.AggFunc) if part is not node), None)
        if within is not None:
            raise self._source.refuse(
                within,
                f"{within.sql('spark')} is an aggregate inside another: send the first to a queue, INSERT INTO counts "
                "SELECT ..., and read that with a second statement",
            )
        kind, argument, number = said
        why = _too_much(node)
        if why is not None:
            raise self._source.refuse(node, why)
        if condition is not None and kind in ("first", "last"):
            raise self._source.refuse(node, f"{kind} takes no FILTER: read a subquery with WHERE {condition} in it")
        if condition is not None:
            if kind == "count" and argument is None:
                kind, argument = "count_if", condition
            elif kind == "count_if":
                argument = f"({condition}) AND ({argument})"
            else:
                argument = f"CASE WHEN {condition} THEN {argument} END"
        try:
            inside = "*" if argument is None else argument if number is None else f"{argument}, {number}"
            return check_aggregate("a", f"{kind}({inside})")
        except InvalidRequest as error:
            raise self._source.refuse(node, str(error).removeprefix("aggregate 'a': ")) from None


#: How near to the number of different values the estimate is.
_NEAR = 0.03
_LIKE = ("collect_list", "collect_set", "max_by", "min_by", "median", "mode", "kurtosis", "skewness")


def _spelled(node: Any, text: Callable[[Any], str]) -> tuple[str, str | None, str | None] | None:
    """Kind, argument and number of an aggregate."""
    from sqlglot import exp

    if isinstance(node, exp.Count):
        inside = node.this
        if isinstance(inside, exp.Distinct):
            if any(is_star(part) for part in inside.expressions):
                return None
            parts = [text(part) for part in inside.expressions]
            return "count_distinct", parts[0] if len(parts) == 1 else _of_all(parts, "to_json(struct({}))"), None
        if isinstance(inside, exp.Star) or inside is None or isinstance(inside, exp.Literal):
            return "count", None, None
        if is_star(inside):
            return None
        parts = [text(part) for part in (inside, *node.expressions)]
        return "count", parts[0] if len(parts) == 1 else _of_all(parts, "1"), None
    plain = {
        exp.CountIf: "count_if",
        exp.Sum: "sum",
        exp.Avg: "avg",
        exp.Min: "min",
        exp.Max: "max",
        exp.Stddev: "stddev",
        exp.StddevSamp: "stddev",
        exp.First: "first",
        exp.FirstValue: "first",
        exp.Last: "last",
        exp.LastValue: "last",
        exp.ApproxDistinct: "approx_distinct",
    }
    kind = plain.get(type(node))
    if isinstance(node.this, exp.Distinct | exp.Order) or is_star(node.this):
        return None
    if kind is not None:
        return kind, text(node.this), None
    if isinstance(node, exp.ApproxQuantile | exp.PercentileCont | exp.Quantile):
        number = node.args.get("quantile") or node.args.get("expression")
        return None if number is None or node.this is None else ("percentile", text(node.this), number.sql("spark"))
    if isinstance(node, exp.Anonymous) and node.name.lower() == "top_k":
        arguments = node.expressions
        number = arguments[1].sql("spark") if len(arguments) > 1 else None
        return ("top_k", text(arguments[0]), number) if arguments else None
    return None


def _of_all(parts: list[str], what: str) -> str:
    """Something of several values, for events that have all of them."""
    there = " AND ".join(f"({part}) IS NOT NULL" for part in parts)
    return f"CASE WHEN {there} THEN {what.format(', '.join(parts))} END"


def _too_much(node: Any) -> str | None:
    """Why an aggregate cannot be computed as exactly as its arguments say."""
    from sqlglot import exp

    match node:
        case exp.ApproxQuantile() if node.args.get("accuracy") or node.args.get("weight"):
            return "a percentile is within 1 percent of its value: leave the accuracy out"
        case exp.ApproxDistinct() if node.args.get("accuracy"):
            given = node.args["accuracy"]
            if not isinstance(given, exp.Literal) or given.is_string or float(given.name) < _NEAR:
                return (
                    "approx_count_distinct is exact up to 1,024 values and then within 3 percent: leave the second "
                    "argument out, or write count(DISTINCT x)"
                )
        case exp.Min() | exp.Max() if node.expressions:
            return (
                f"{node.key} takes one value: {'least' if isinstance(node, exp.Min) else 'greatest'} compares several"
            )
        case exp.CountIf() if node.args.get("zero_on_all_null"):
            return "count_if takes one condition: put them together with AND"
        case exp.Anonymous() if len(node.expressions) > 2:
            return "top_k takes a value and how many: top_k(x, 10)"
    return None


def _windowed(events: Definition, spanned: Spanned, rules: dict[str, Any]) -> Definition:
    match spanned.window:
        case Tumbling(size_us=size):
            return events.window_tumbling(seconds=size / 10**6, **rules)
        case Sliding(size_us=size, slide_us=slide):
            return events.window_sliding(size=size / 10**6, slide=slide / 10**6, **rules)
        case Session(gap_us=gap):
            return events.window_session(gap=gap / 10**6, **rules)
        case Calendar(every=every, timezone=zone):
            return events.window_calendar(every=every, timezone=zone, **rules)


def _raw() -> Any:
    """A part of a statement that is spelt already."""
    from sqlglot import exp

    return exp.Var


def _identifier(text: str) -> str:
    """A name for what has none."""
    made = re.sub(r"\W+", "_", text.lower()).strip("_")[:50]
    return made if made and not made[0].isdigit() else f"c_{made}"
