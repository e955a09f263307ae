"""Random SELECTs, nested in one another. Their rows do not depend on how ties are broken."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.stream.views.statements import REFERENCE, TABLES


@dataclass(frozen=True)
class Select:
    sql: str
    #: Names of columns that are numbers.
    columns: tuple[str, ...]


class RandomStatements:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._aliases = 0
        #: Subqueries that may be used again, by depth.
        self._subqueries: dict[int, list[Select]] = {}

    def select(self, depth: int) -> Select:
        if depth == 0 and self._chance.random() < 0.2:
            return self._lookup()
        if depth == 0:
            table = self._chance.choice(list(TABLES))
            return Select(f"SELECT id AS c0, k AS c1, x AS c2, y AS c3 FROM {table}", ("c0", "c1", "c2", "c3"))  # noqa: S608
        kinds = (self._row, self._filter, self._aggregate, self._join, self._join, self._set_operation, self._subquery)
        return self._chance.choice((*kinds, self._window, self._top_n, self._first_rows, self._scalar))(depth)

    def _lookup(self) -> Select:
        table, kind = self._chance.choice(list(TABLES)), self._chance.choice(("JOIN", "LEFT JOIN"))
        condition = self._chance.choice(("r.k = t.k", "r.x = t.x + 1 AND r.y > t.y", "r.k > t.x"))
        return self._output(["t.id", "r.k", "t.x", "r.y"], f"{table} t {kind} {REFERENCE} r ON {condition}")

    def _input(self, depth: int) -> tuple[str, list[str]]:
        """Return a subquery for FROM, and its qualified columns."""
        inner_depth = self._chance.randrange(depth)
        known = self._subqueries.setdefault(inner_depth, [])
        is_new = not known or self._chance.random() < 0.6
        inner = self.select(inner_depth) if is_new else self._chance.choice(known)
        known.append(inner)
        self._aliases += 1
        alias = f"s{self._aliases}"
        return f"({inner.sql}) {alias}", [f"{alias}.{name}" for name in inner.columns]

    def _output(self, expressions: list[str], rest: str, distinct: str = "") -> Select:
        names = tuple(f"c{number}" for number in range(len(expressions)))
        items = ", ".join(f"{sql} AS {name}" for sql, name in zip(expressions, names, strict=True))
        return Select(f"SELECT {distinct} {items} FROM {rest}", names)  # noqa: S608

    def _value(self, columns: list[str]) -> str:
        one, other = self._chance.choice(columns), self._chance.choice(columns)
        forms = ("{0}", "{0}", "{0} + 1", "{0} - {1}", "coalesce({0}, {1})", "CASE WHEN {0} > {1} THEN {0} ELSE 0 END")
        return self._chance.choice(forms).format(one, other)

    def _values(self, columns: list[str]) -> list[str]:
        return [self._value(columns) for _ in range(self._chance.randrange(1, 4))]

    def _condition(self, columns: list[str]) -> str:
        one, other, number = self._value(columns), self._value(columns), self._chance.randrange(4)
        forms = (
            "{0} > {2}",
            "{0} = {1}",
            "{0} IS NULL",
            "{0} IS NOT NULL",
            "{0} < {1} OR {1} = {2}",
            "{0} IN (1, {2})",
        )
        part = self._chance.choice(forms).format(one, other, number)
        return f"({part}) AND {self._condition(columns)}" if self._chance.random() < 0.3 else f"({part})"

    def _row(self, depth: int) -> Select:
        rows, columns = self._input(depth)
        return self._output(self._values(columns), rows, self._chance.choice(("", "", "DISTINCT")))

    def _filter(self, depth: int) -> Select:
        rows, columns = self._input(depth)
        return self._output(columns, f"{rows} WHERE {self._condition(columns)}")

    def _aggregate(self, depth: int) -> Select:
        rows, columns = self._input(depth)
        groups = self._values(columns) if self._chance.random() < 0.8 else []
        value, other = self._value(columns), self._value(columns)
        calls = ["count(*)", f"count({value})", f"sum({value})", f"min({value})", f"max({other})"]
        calls += [f"count(DISTINCT {value})", f"sum({value}) FILTER (WHERE {other} > 1)"]
        chosen = self._chance.sample(calls, 2)
        where = f" WHERE {self._condition(columns)}" if self._chance.random() < 0.3 else ""
        by = f" GROUP BY {', '.join(dict.fromkeys(groups))}" if groups else ""
        having = f" HAVING {self._chance.choice([*chosen, *groups])} > 1" if self._chance.random() < 0.4 else ""
        return self._output([*groups, *chosen], rows + where + by + having)

    def _join(self, depth: int) -> Select:
        (left, left_columns), (right, right_columns) = self._input(depth), self._input(depth)
        columns = [*left_columns, *right_columns]
        on = f"{self._value(left_columns)} = {self._value(right_columns)}"
        if self._chance.random() < 0.4:
            on += f" AND {self._condition(columns)}"
        kind = self._chance.choice(("", "", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"))
        visible = left_columns if kind in ("LEFT SEMI", "LEFT ANTI") else columns
        where = f" WHERE {self._condition(visible)}" if self._chance.random() < 0.5 else ""
        if kind == "" and self._chance.random() < 0.3:
            return self._output(self._values(visible), f"{left}, {right} WHERE {on}")
        return self._output(self._values(visible), f"{left} {kind} JOIN {right} ON {on}{where}")

    def _set_operation(self, depth: int) -> Select:
        (left, left_columns), (right, right_columns) = self._input(depth), self._input(depth)
        one, other = self._output(left_columns[:1], left), self._output(right_columns[:1], right)
        operation = self._chance.choice(("UNION ALL", "UNION", "INTERSECT", "EXCEPT"))
        return Select(f"{one.sql} {operation} {other.sql}", one.columns)

    def _subquery(self, depth: int) -> Select:
        (left, left_columns), (right, right_columns) = self._input(depth), self._input(depth)
        own, other = self._value(left_columns), self._value(right_columns)
        negation = self._chance.choice(("", "NOT "))
        more = f" AND {self._condition([*left_columns, *right_columns])}" if self._chance.random() < 0.4 else ""
        exists = f"{negation}EXISTS (SELECT 1 FROM {right} WHERE {own} = {other}{more})"  # noqa: S608
        where = f" WHERE {self._condition(right_columns)}" if self._chance.random() < 0.4 else ""
        within = f"{own} {negation}IN (SELECT {other} FROM {right}{where})"  # noqa: S608
        return self._output(left_columns, f"{left} WHERE {self._chance.choice((exists, within))}")

    def _scalar(self, depth: int) -> Select:
        (left, left_columns), (right, right_columns) = self._input(depth), self._input(depth)
        own, other = self._value(left_columns), self._value(right_columns)
        function = self._chance.choice((f"count({other})", f"max({other})", f"sum({other}) + 1"))
        where = f" WHERE {own} = {self._value(right_columns)}" if self._chance.random() < 0.5 else ""
        scalar = f"(SELECT {function} FROM {right}{where})"  # noqa: S608
        if self._chance.random() < 0.5:
            return self._output([*left_columns[:2], scalar], left)
        return self._output(left_columns, f"{left} WHERE {self._value(left_columns)} < {scalar}")

    def _window(self, depth: int) -> Select:
        rows, columns = self._input(depth)
        partition, order = self._value(columns), self._value(columns)
        call = self._chance.choice(("rank()", "dense_rank()", "count(*)", f"sum({self._value(columns)})"))
        over = f"{call} OVER (PARTITION BY {partition} ORDER BY {order})"
        if self._chance.random() < 0.3:
            return self._output(columns, f"{rows} QUALIFY {over} <= 2")
        return self._output([*columns[:2], over], rows)

    def _top_n(self, depth: int) -> Select:
        rows, columns = self._input(depth)
        keys = [f"{name} {self._chance.choice(('', 'DESC'))}" for name in columns]
        # Rows that tie in the order of all columns are equal.
        return self._output(columns, f"{rows} ORDER BY {', '.join(keys)} LIMIT {self._chance.randrange(1, 6)}")

    def _first_rows(self, depth: int) -> Select:
        rows, columns = self._input(depth)
        number = f"row_number() OVER (PARTITION BY {self._value(columns)} ORDER BY {', '.join(columns)})"
        limit = self._chance.choice(("<= 2", "= 1", "< 3", "= 2"))
        if self._chance.random() < 0.5:
            return self._output(columns, f"{rows} QUALIFY {number} {limit}")
        inner = self._output([*columns, number], rows)
        kept = list(inner.columns if self._chance.random() < 0.5 else inner.columns[:-1])
        return self._output(kept, f"({inner.sql}) r WHERE {inner.columns[-1]} {limit}")
