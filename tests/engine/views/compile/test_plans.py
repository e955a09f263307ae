"""Plans of views through Spark: types, nulls, plans that share an operator, and what is refused."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.core.errors import InvalidRequest
from penstock.stream.views.view_plan import (
    Aggregate,
    AggregateCall,
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
    WindowFunction,
    WindowFunctions,
)
from tests.engine.views.compile.view_cycles import PlanRun, to_events
from tests.engine.views.operators.changing_rows import Row, assert_same_rows

KINDS: dict[str, Any] = {
    "i": pa.int64(),
    "f": pa.float64(),
    "d": pa.decimal128(38, 18),
    "s": pa.string(),
    "b": pa.bool_(),
    "t": pa.timestamp("us", "UTC"),
    "y": pa.date32(),
    "x": pa.binary(),
    "r": pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
    "l": pa.list_(pa.int64()),
}
FIELDS = pa.schema(KINDS.items())


def source(prefix: str = "", queue: str = "q") -> QueueSource:
    return QueueSource(queue, tuple(SourceColumn(prefix + name, name) for name in KINDS))


def row(number: int, **fields: Any) -> Row:
    values = {
        "i": number,
        "f": number / 2,
        "d": Decimal(number),
        "s": f"s{number}",
        "b": number % 2 == 0,
        "t": datetime(2026, 1, number, tzinfo=UTC),
        "y": date(2026, 1, number),
        "x": bytes([number]),
        "r": {"a": number, "b": ["x"] * number},
        "l": list(range(number)),
    }
    return values | fields


class Cycles:
    """Cycles over the events of one queue."""

    def __init__(self, run: PlanRun) -> None:
        self.run = run
        self._count = 0

    def cycle(self, *rows: Row, is_single: bool = True) -> list[Row]:
        table = to_events(rows, self._count, fields=FIELDS)
        self._count += len(rows)
        self.run.cycle({"q": table, "p": table.slice(0, 0)}, is_single=is_single)
        return self.run.rows


@pytest.fixture
def cycles_of(spark: SparkSession, database_url: str) -> Any:
    return lambda plan: Cycles(PlanRun(spark, database_url, plan))


def spark_plan(cycles: Cycles, *, is_single: bool) -> str:
    table = to_events([row(1)], fields=FIELDS)
    frame = cycles.run.compile({"q": table, "p": table}, is_single=is_single).frame
    return str(frame._jdf.queryExecution().executedPlan().toString())


def groups(*names: str) -> tuple[NamedExpression, ...]:
    return tuple(NamedExpression(f"group_{name}", f"`{name}`") for name in names)


ALL_GROUPS = ("i", "f", "d", "s", "b", "t", "y", "x")
LATEST = TopN(source(), ("`i`",), (SortKey("`t`", is_descending=True),), 1)


def test_rows_of_all_types_are_grouped_by_all_types(cycles_of: Any) -> None:
    calls = [AggregateCall("n", "count")]
    calls += [AggregateCall(f"{name}_{each}", name, f"`{each}`") for each in ALL_GROUPS for name in ("min", "max")]
    cycles = cycles_of(Aggregate(LATEST, groups(*ALL_GROUPS), tuple(calls)))
    cycles.cycle(row(1), row(2), is_single=False)
    nulls = dict.fromkeys(KINDS)
    found = cycles.cycle(row(1, t=datetime(2027, 1, 1, tzinfo=UTC)), nulls, nulls)
    rows = [row(1, t=datetime(2027, 1, 1, tzinfo=UTC)), row(2), nulls]
    expected = [
        {f"group_{name}": each[name] for name in ALL_GROUPS}
        | {"n": 1}
        | {f"{function}_{name}": each[name] for name in ALL_GROUPS for function in ("min", "max")}
        for each in rows
    ]
    assert_same_rows(found, expected)


def test_structs_and_arrays_are_columns_of_joins_and_first_rows(cycles_of: Any) -> None:
    left, right = source("l_"), source("r_")
    latest = TopN(left, ("`l_i`",), (SortKey("`l_t`", is_descending=True),), 1)
    cycles = cycles_of(Join(latest, right, JoinKind.LEFT, ("`l_i`",), ("`r_i`",), "`l_s` <> `r_s`"))
    cycles.cycle(row(1), row(2))
    found = cycles.cycle(row(1, s="new", r=None, l=[None]))
    first, second, third = row(1), row(2), row(1, s="new", r=None, l=[None])
    # Of equal times the first row counts.
    expected = [(first, third), (second, dict.fromkeys(KINDS))]
    assert_same_rows(
        found,
        [{f"l_{n}": v for n, v in a.items()} | {f"r_{n}": v for n, v in b.items()} for a, b in expected],
    )


def test_nan_is_one_group_and_the_greatest_and_zeros_are_equal(cycles_of: Any) -> None:
    calls = (AggregateCall("n", "count"), AggregateCall("m", "max", "`d`"))
    cycles = cycles_of(Aggregate(source(), groups("f"), calls))
    found = cycles.cycle(row(1, f=0.0), row(2, f=-0.0), row(3, f=math.nan), row(4, f=math.nan), is_single=False)
    assert_same_rows(found, [{"group_f": 0.0, "n": 2, "m": Decimal(2)}, {"group_f": math.nan, "n": 2, "m": Decimal(4)}])
    top = cycles_of(Project(TopN(source(), (), (SortKey("`f`", is_descending=True),), 1), groups("f")))
    assert_same_rows(top.cycle(row(1), row(2, f=math.nan), row(3, f=math.inf)), [{"group_f": math.nan}])


def test_the_row_of_an_aggregate_without_groups_stays_when_all_rows_are_gone(cycles_of: Any) -> None:
    latest = Filter(LATEST, "`b`")
    calls = (AggregateCall("n", "count"), AggregateCall("total", "sum", "`i`"), AggregateCall("low", "min", "`i`"))
    cycles = cycles_of(Aggregate(latest, (), calls))
    assert cycles.cycle(row(2)) == [{"n": 1, "total": Decimal(2), "low": 2}]
    gone = row(2, b=False, t=datetime(2027, 1, 1, tzinfo=UTC))
    assert cycles.cycle(gone, is_single=False) == [{"n": 0, "total": None, "low": None}]
    assert cycles.cycle(row(4)) == [{"n": 1, "total": Decimal(4), "low": 4}]


@pytest.mark.parametrize("retracts", [False, True])
def test_values_of_the_first_and_the_last_row(cycles_of: Any, retracts: bool) -> None:
    calls = (
        AggregateCall("earliest", "min_by", "`r`", order="`t`"),
        AggregateCall("latest", "max_by", "`s`", order="`t`"),
        AggregateCall("latest_even", "max_by", "`i`", order="`t`", filter="`b`"),
        AggregateCall("first_row", "first", "`s`"),
        AggregateCall("last_row", "last", "`l`"),
        AggregateCall("all_even", "bool_and", "`b`"),
        AggregateCall("any_even", "bool_or", "`b`"),
    )
    cycles = cycles_of(Aggregate(LATEST if retracts else source(), (), calls))
    cycles.cycle(row(3), row(2), row(5, t=None))
    (found,) = cycles.cycle(row(4, l=None), row(1, s=None), is_single=False)
    assert found == {
        "earliest": row(1)["r"],
        "latest": "s4",
        "latest_even": 4,
        # Events are in the order of arrival, the latest rows of each group in that of the groups.
        "first_row": "s2" if retracts else "s3",
        "last_row": [0, 1, 2, 3, 4] if retracts else [0],
        "all_even": False,
        "any_even": True,
    }


def test_an_anti_join_keeps_rows_whose_key_is_null(cycles_of: Any) -> None:
    others = Filter(source("o_"), "`o_i` > 2")
    keys = Project(Join(source(), others, JoinKind.ANTI, ("`i`",), ("`o_i`",)), groups("i"))
    cycles = cycles_of(keys)
    found = cycles.cycle(row(1), row(3), row(4, i=None))
    assert sorted(str(each["group_i"]) for each in found) == ["1", "None"]
    semi = cycles_of(Project(Join(source(), others, JoinKind.SEMI, ("`i`",), ("`o_i`",)), groups("i")))
    assert semi.cycle(row(1), row(3), row(4, i=None), is_single=False) == [{"group_i": 3}]


def test_sums_keep_all_digits_and_means_are_decimals(cycles_of: Any) -> None:
    calls = tuple(AggregateCall(name, name.split("_")[0], f"`{name[-1]}`") for name in ("sum_i", "sum_d", "avg_d"))
    cycles = cycles_of(Aggregate(source(), (), calls))
    large = Decimal("12345678901234567.000000000000000001")
    cycles.cycle(row(1, i=2**63 - 1, d=large), row(2, i=2**63 - 1, d=large))
    (found,) = cycles.cycle(row(3, i=None, d=None))
    assert found == {
        "sum_i": Decimal(2**64 - 2),
        "sum_d": Decimal("24691357802469134.000000000000000002"),
        "avg_d": large,
    }


def shared_plan() -> Operator:
    """The groups with the most rows: an aggregate that is joined with an aggregate of itself."""
    counts = Aggregate(source(), groups("s", "i"), (AggregateCall("n", "count"),))
    most = Aggregate(counts, (NamedExpression("of", "`group_s`"),), (AggregateCall("most", "max", "`n`"),))
    return Join(counts, most, JoinKind.INNER, ("`group_s`", "`n`"), ("`of`", "`most`"))


@pytest.mark.parametrize("is_single", [True, False])
def test_an_operator_that_is_used_twice_has_its_state_once(cycles_of: Any, database_url: str, is_single: bool) -> None:
    cycles = cycles_of(shared_plan())
    cycles.cycle(row(1, s="a"), row(1, s="a"), row(2, s="a"), row(3, s="b"), is_single=is_single)
    found = cycles.cycle(row(2, s="a"), row(2, s="a"), is_single=is_single)
    assert sorted((each["group_s"], each["group_i"], each["most"]) for each in found) == [("a", 2, 3), ("b", 3, 1)]
    with psycopg.connect(database_url) as conn:
        rows = conn.execute(
            "SELECT operator, count(*) FROM (SELECT operator, shard, part, run_id, sum(rows) FROM penstock.state_runs "
            "GROUP BY 1, 2, 3, 4) GROUP BY operator ORDER BY operator"
        ).fetchall()
        pending = conn.execute("SELECT count(*) FROM penstock.state_runs WHERE NOT is_current").fetchone()
    assert [operator for operator, _ in rows] == [1, 2, 3]
    assert pending == (0,)


def test_a_large_cycle_computes_an_operator_once_for_all_of_its_uses(cycles_of: Any) -> None:
    plan = spark_plan(cycles_of(shared_plan()), is_single=False)
    # The partial aggregates, the counts, the maxima and the join.
    assert (plan.count("MapInArrow"), plan.count("ReusedExchange")) == (4, 1)


def test_a_queue_that_is_read_twice_is_read_once_in_a_large_cycle(cycles_of: Any) -> None:
    left = Project(Filter(source("a_"), "`a_i` > 1"), (NamedExpression("n", "`a_i`"),))
    right = Project(source("b_"), (NamedExpression("n", "`b_i`"),))
    cycles = cycles_of(UnionAll((left, right)))
    assert spark_plan(cycles, is_single=False).count("ReusedExchange") == 1
    assert sorted(each["n"] for each in cycles.cycle(row(1), row(2), is_single=False)) == [1, 2, 2]


@pytest.mark.parametrize(
    "plan",
    [
        shared_plan(),
        LATEST,
        WindowFunctions(
            source(),
            ("`s`",),
            (SortKey("`t`"),),
            (WindowFunction("number", "row_number()"), WindowFunction("rank", "rank()")),
        ),
        Join(source("l_"), source("r_", "p"), JoinKind.FULL, ("`l_i`",), ("`r_i`",), "`l_d` > `r_d`"),
    ],
    ids=["joined aggregates", "latest", "window functions", "full join"],
)
def test_a_small_cycle_has_no_exchange_so_that_its_plan_can_be_run_again(cycles_of: Any, plan: Operator) -> None:
    assert "Exchange" not in spark_plan(cycles_of(plan), is_single=True)


@pytest.mark.parametrize(
    "plan",
    [
        Aggregate(source(), groups("r"), ()),
        Aggregate(source(), (), (AggregateCall("n", "count", "`l`", is_distinct=True),)),
        Aggregate(source(), (), (AggregateCall("n", "min", "`r`"),)),
        Aggregate(source(), (), (AggregateCall("n", "sum", "`t`"),)),
        Join(source("l_"), source("r_"), JoinKind.INNER, ("`l_l`",), ("`r_l`",)),
        TopN(source(), (), (SortKey("`l`"),), 1),
        TopN(source(), ("`r`",), (), 1),
    ],
    ids=["GROUP BY", "DISTINCT", "min", "sum", "join key", "ORDER BY", "PARTITION BY"],
)
def test_types_that_cannot_be_compared_are_refused(cycles_of: Any, plan: Operator) -> None:
    with pytest.raises(InvalidRequest, match="type"):
        cycles_of(plan).cycle()


def test_state_of_a_job_that_was_not_committed_is_never_read_and_is_deleted(cycles_of: Any, database_url: str) -> None:
    cycles = cycles_of(Aggregate(source(), groups("s"), (AggregateCall("n", "count"),)))
    lost = to_events([row(1, s="a")], fields=FIELDS)
    for is_single in (True, False):
        cycles.run.compute({"q": lost}, is_single=is_single)
    assert cycles.cycle(row(1, s="a")) == [{"group_s": "a", "n": 1}]
    with psycopg.connect(database_url) as conn:
        found = conn.execute("SELECT count(*), bool_and(is_current) FROM penstock.state_runs").fetchone()
    assert found == (1, True)


@pytest.mark.parametrize("condition", [None, "`n` > `o_i`"])
def test_rows_without_a_match_are_told_apart_if_the_key_of_one_is_null(cycles_of: Any, condition: str | None) -> None:
    """The groups 0 and null, and a pair with the group null, are three rows."""
    counts = Aggregate(source(), groups("i"), (AggregateCall("n", "count"),))
    names = (NamedExpression("o_i", "`group_i`"), NamedExpression("o_n", "`n`"))
    cycles = cycles_of(Join(counts, Project(counts, names), JoinKind.FULL, ("`n`",), ("`o_i`",), condition))
    found = cycles.cycle(row(1, i=None), row(1, i=0), row(1, i=1), is_single=False)
    pairs = sorted(str((each["group_i"], each["o_i"])) for each in found)
    if condition is None:
        assert pairs == ["(0, 1)", "(1, 1)", "(None, 0)", "(None, 1)", "(None, None)"]
    else:
        assert pairs == ["(0, None)", "(1, None)", "(None, 0)", "(None, 1)", "(None, None)", "(None, None)"]
