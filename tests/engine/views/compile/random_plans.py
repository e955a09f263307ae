"""Random plans of nested operators, whose expressions mean the same in Spark and in DuckDB."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import count

from penstock.stream.views.view_plan import (
    Aggregate,
    AggregateCall,
    Explode,
    Filter,
    Join,
    JoinKind,
    NamedExpression,
    Operator,
    Project,
    QueueSource,
    SortKey,
    SourceColumn,
    TopN,
    UnionAll,
    ViewSource,
    WindowFunction,
    WindowFunctions,
)

#: The fields of the sources and their kinds. Numbers that are not exact have the kind "float".
FIELDS = {"i": "int", "n": "int", "s": "text", "d": "decimal"}


@dataclass(frozen=True)
class Plan:
    operator: Operator
    #: The kinds of the columns by name.
    kinds: dict[str, str]

    def names(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.kinds.items() if kind in kinds]


class PlanGenerator:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._names = (f"c{number}" for number in count())

    def plan(self, depth: int) -> Plan:
        """A plan with at most so many operators on top of one another, beside sources and projections."""
        if depth == 0:
            return self._source()
        common = [self._aggregate, self._aggregate, self._join, self._join]
        others = [self._filter, self._project, self._union, self._top_n, self._window_functions, self._explode]
        return self._chance.choice([*common, *others])(depth - 1)

    def _exact(self, depth: int) -> Plan:
        """A plan without inexact columns, which could be compared differently."""
        plan = self.plan(depth)
        if not plan.names("float"):
            return plan
        return self._rename(plan, plan.names("int", "text", "decimal"))

    def _rename(self, plan: Plan, names: list[str]) -> Plan:
        new = {name: next(self._names) for name in names}
        if not new:
            return self._source()
        columns = tuple(NamedExpression(alias, f"`{name}`") for name, alias in new.items())
        return Plan(Project(plan.operator, columns), {alias: plan.kinds[name] for name, alias in new.items()})

    def _source(self) -> Plan:
        names = {field: next(self._names) for field in FIELDS}
        columns = tuple(SourceColumn(name, field) for field, name in names.items())
        kinds = {name: FIELDS[field] for field, name in names.items()}
        name = self._chance.choice(["q1", "q2", "v"])
        return Plan(ViewSource("v", columns) if name == "v" else QueueSource(name, columns), kinds)

    def _filter(self, depth: int) -> Plan:
        plan = self._exact(depth)
        return Plan(Filter(plan.operator, self._condition(plan)), plan.kinds)

    def _condition(self, plan: Plan) -> str:
        name = self._chance.choice(list(plan.kinds))
        if plan.kinds[name] == "text":
            return self._chance.choice([f"`{name}` > 'a'", f"`{name}` IS NOT NULL", f"`{name}` <> 'b'"])
        return self._chance.choice([f"`{name}` > 1", f"`{name}` IS NOT NULL", f"`{name}` < 3 OR `{name}` IS NULL"])

    def _project(self, depth: int) -> Plan:
        plan = self._exact(depth)
        columns, kinds = [], {}
        for name in self._chance.sample(list(plan.kinds), self._chance.randint(1, len(plan.kinds))):
            alias, kind = next(self._names), plan.kinds[name]
            sql = f"`{name}`"
            if kind == "int" and self._chance.random() < 0.5:
                # A remainder by zero is null.
                sql = self._chance.choice([f"`{name}` + 1", f"`{name}` % `{self._chance.choice(plan.names('int'))}`"])
            elif kind == "text" and self._chance.random() < 0.5:
                sql = f"coalesce(`{name}`, 'none')"
            columns.append(NamedExpression(alias, sql))
            kinds[alias] = kind
        return Plan(Project(plan.operator, tuple(columns)), kinds)

    def _explode(self, depth: int) -> Plan:
        plan = self._exact(depth)
        if not plan.names("int"):
            return plan
        number, name = self._chance.choice(plan.names("int")), next(self._names)
        explode = Explode(plan.operator, name, f"array(`{number}`, `{number}` + 1)")
        return Plan(explode, plan.kinds | {name: "int"})

    def _union(self, depth: int) -> Plan:
        plans = [self._exact(depth), self._exact(self._chance.randint(0, depth))]
        common = [kind for kind in ("int", "text", "decimal") if all(plan.names(kind) for plan in plans)]
        if not common:
            return plans[0]
        chosen = [{kind: self._chance.choice(plan.names(kind)) for kind in common} for plan in plans]
        names = {kind: next(self._names) for kind in common}
        inputs = tuple(
            Project(plan.operator, tuple(NamedExpression(names[kind], f"`{each[kind]}`") for kind in common))
            for plan, each in zip(plans, chosen, strict=True)
        )
        return Plan(UnionAll(inputs), {name: kind for kind, name in names.items()})

    def _aggregate(self, depth: int) -> Plan:
        plan = self._exact(depth)
        names = list(plan.kinds)
        kinds: dict[str, str] = {}
        groups = []
        for name in self._chance.sample(names, min(len(names), self._chance.choice([0, 1, 1, 1, 2]))):
            alias = next(self._names)
            groups.append(NamedExpression(alias, f"`{name}`"))
            kinds[alias] = plan.kinds[name]
        calls = [self._call(plan, kinds) for _ in range(self._chance.randint(0 if groups else 1, 4))]
        return Plan(Aggregate(plan.operator, tuple(groups), tuple(calls)), kinds)

    def _call(self, plan: Plan, kinds: dict[str, str]) -> AggregateCall:
        """An aggregate function. Adds its column to ``kinds``."""
        alias = next(self._names)
        condition = self._condition(plan) if self._chance.random() < 0.3 else None
        argument = self._chance.choice(list(plan.kinds))
        numbers = plan.names("int", "decimal")
        function = self._chance.choice(["count", "sum", "avg", "min", "max", "stddev", "percentile", "count distinct"])
        if function in ("sum", "avg", "stddev"):
            if not numbers:
                function = "count"
            else:
                argument = self._chance.choice(numbers)
        kinds[alias] = plan.kinds[argument]
        if function in ("count", "count distinct"):
            kinds[alias] = "int"
        elif function == "sum":
            kinds[alias] = "decimal"
        elif function in ("avg", "stddev"):
            kinds[alias] = "float"
        if function == "count" and self._chance.random() < 0.5:
            return AggregateCall(alias, "count", None, filter=condition)
        is_distinct = function == "count distinct" or (function == "sum" and self._chance.random() < 0.3)
        fraction = self._chance.choice([0.25, 0.5, 1.0]) if function == "percentile" else None
        return AggregateCall(alias, function.split()[0], f"`{argument}`", is_distinct, condition, fraction=fraction)

    def _join(self, depth: int) -> Plan:
        left, right = self._exact(depth), self._exact(self._chance.randint(0, depth))
        if self._chance.random() < 0.2:
            # A join of a relation with itself, under other names.
            right = self._rename(left, list(left.kinds))
        kind = self._chance.choice(list(JoinKind))
        keys = [
            (a, b) for a in left.kinds for b in right.kinds if (left.kinds[a] == "text") == (right.kinds[b] == "text")
        ]
        if not keys:
            return left
        chosen = self._chance.sample(keys, min(len(keys), self._chance.choice([1, 1, 2])))
        numbers = left.names("int", "decimal"), right.names("int", "decimal")
        condition = None
        if all(numbers) and self._chance.random() < 0.4:
            condition = f"`{self._chance.choice(numbers[0])}` > `{self._chance.choice(numbers[1])}`"
        operator = Join(
            left.operator,
            right.operator,
            kind,
            tuple(f"`{a}`" for a, _ in chosen),
            tuple(f"`{b}`" for _, b in chosen),
            condition,
        )
        if kind in (JoinKind.SEMI, JoinKind.ANTI):
            return Plan(operator, left.kinds)
        return Plan(operator, left.kinds | right.kinds)

    def _order(self, plan: Plan) -> tuple[SortKey, ...]:
        """An order by all columns, so that only equal rows are tied."""
        names = list(plan.kinds)
        self._chance.shuffle(names)
        return tuple(SortKey(f"`{name}`", self._chance.random() < 0.5, self._chance.random() < 0.5) for name in names)

    def _partition(self, plan: Plan) -> tuple[str, ...]:
        return tuple(f"`{name}`" for name in self._chance.sample(list(plan.kinds), self._chance.choice([0, 1, 1])))

    def _top_n(self, depth: int) -> Plan:
        plan = self._exact(depth)
        rank = next(self._names) if self._chance.random() < 0.5 else None
        limit = self._chance.choice([1, 2, 5])
        operator = TopN(plan.operator, self._partition(plan), self._order(plan), limit, rank)
        return Plan(operator, plan.kinds | ({rank: "int"} if rank is not None else {}))

    def _window_functions(self, depth: int) -> Plan:
        plan = self._exact(depth)
        number = self._chance.choice(plan.names("int", "decimal") or [""])
        frame = "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"
        choices = [("row_number()", None, "int"), ("rank()", None, "int"), ("count(*)", frame, "int")]
        if number:
            choices += [(f"max(`{number}`)", frame, plan.kinds[number]), (f"lag(`{number}`)", None, plan.kinds[number])]
        chosen = self._chance.sample(choices, 2)
        names = [next(self._names) for _ in chosen]
        functions = tuple(WindowFunction(name, sql, rows) for name, (sql, rows, _) in zip(names, chosen, strict=True))
        operator = WindowFunctions(plan.operator, self._partition(plan), self._order(plan), functions)
        return Plan(operator, plan.kinds | {name: kind for name, (_, _, kind) in zip(names, chosen, strict=True)})
