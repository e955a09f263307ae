"""What the optimizer reads, keeps and compares. That it keeps the rows is tested with those of SELECTs."""

from __future__ import annotations

from typing import TypeVar

import pytest

from penstock.stream.views.optimize.optimizer import optimize
from penstock.stream.views.view_catalog import ViewCatalog
from penstock.stream.views.view_plan import (
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Operator,
    Project,
    QueueSource,
    TopN,
    WindowFunctions,
    output_columns,
    walk,
)
from tests.stream.views.select_statements import STATEMENTS
from tests.stream.views.statements import plan

_Kind = TypeVar("_Kind", bound=Operator)


def all_of(root: Operator, kind: type[_Kind]) -> list[_Kind]:
    return [operator for operator in walk(root) if isinstance(operator, kind)]


def read_fields(root: Operator) -> dict[str, set[str]]:
    return {source.queue: {column.field for column in source.columns} for source in all_of(root, QueueSource)}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_optimized_plan_is_not_changed_again(statement: str) -> None:
    root = plan(statement)
    assert optimize(root) == root


def test_reads_only_the_columns_that_are_used() -> None:
    root = plan("SELECT a.n FROM (SELECT *, x + y AS n FROM t) a JOIN (SELECT * FROM u) b ON a.k = b.k")
    assert read_fields(root) == {"t": {"k", "x", "y"}, "u": {"k"}}


def test_unused_aggregates_are_not_computed() -> None:
    (aggregate,) = all_of(plan("SELECT n FROM (SELECT k, count(*) AS n, sum(x) AS s FROM t GROUP BY k)"), Aggregate)
    assert [call.function for call in aggregate.calls] == ["count"]


def test_column_that_only_a_filter_uses_is_not_kept_by_a_join() -> None:
    (join,) = all_of(plan("SELECT t.id FROM t JOIN u ON t.k = u.k WHERE t.x > 1"), Join)
    assert set(output_columns(join)) == {"t.id", "t.k", "u.k"}


def test_conditions_move_below_a_join_and_into_a_union() -> None:
    root = plan("SELECT c.n FROM (SELECT k AS n FROM t UNION ALL SELECT x FROM u) c JOIN v ON c.n = v.k WHERE c.n > 1")
    (join,) = all_of(root, Join)
    filters = all_of(root, Filter)
    assert len(filters) == 2
    assert all(isinstance(each.input, QueueSource) for each in filters)
    assert isinstance(root, Project)
    assert root.input == join


def test_condition_on_a_group_is_computed_before_grouping() -> None:
    root = plan("SELECT * FROM (SELECT k, count(*) AS n FROM t GROUP BY k) WHERE k = 3 AND n > 1")
    (aggregate,) = all_of(root, Aggregate)
    assert aggregate.input == Filter(QueueSource("t", all_of(root, QueueSource)[0].columns), "`t.k` = 3")


def test_condition_on_a_partition_is_computed_before_its_first_rows() -> None:
    root = plan("SELECT id FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY id) <= 2 AND k = 3")
    (top_n,) = all_of(root, TopN)
    assert isinstance(top_n.input, Filter | Project)
    assert [each.condition for each in all_of(root, Filter)] == ["`t.k` = 3"]


def test_comma_joins_are_ordered_by_their_keys() -> None:
    root = plan("SELECT t.id FROM t, u, v WHERE t.k = v.k AND u.x = v.x")
    assert [join.left_keys for join in all_of(root, Join)] == [("`t.k`",), ("`v.x`",)]


def test_equal_value_of_a_subquery_is_a_key() -> None:
    (join,) = all_of(plan("SELECT id FROM t WHERE x = (SELECT max(x) FROM u)"), Join)
    assert (join.kind, join.left_keys) == (JoinKind.INNER, ("`t.x`",))


@pytest.mark.parametrize(
    ("join", "where", "kind"),
    [
        ("LEFT", "u.x > 1", JoinKind.INNER),
        ("LEFT", "u.x IS NULL", JoinKind.LEFT),
        ("LEFT", "t.x > 1", JoinKind.LEFT),
        ("RIGHT", "t.x = 1", JoinKind.INNER),
        ("FULL", "t.x = 1", JoinKind.LEFT),
        ("FULL", "u.x = 1", JoinKind.RIGHT),
        ("FULL", "t.x = u.x", JoinKind.INNER),
    ],
)
def test_outer_join_whose_unmatched_rows_are_removed_is_simpler(join: str, where: str, kind: JoinKind) -> None:
    (operator,) = all_of(plan(f"SELECT t.id FROM t {join} JOIN u ON t.k = u.k WHERE {where}"), Join)  # noqa: S608
    assert operator.kind is kind


def test_row_number_is_kept_only_if_it_is_selected() -> None:
    inner = "SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) AS r FROM t"
    (with_rank,) = all_of(plan(f"SELECT id, r FROM ({inner}) WHERE r <= 3"), TopN)  # noqa: S608
    (without,) = all_of(plan(f"SELECT id FROM ({inner}) WHERE r <= 3"), TopN)  # noqa: S608
    assert with_rank.rank_name is not None
    assert without.rank_name is None


def test_other_window_functions_are_computed_before_the_first_rows_are_taken() -> None:
    root = plan(
        "SELECT id FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY id) = 1 "
        "AND sum(x) OVER (PARTITION BY k) > 2"
    )
    (top_n,) = all_of(root, TopN)
    assert len(all_of(top_n, WindowFunctions)) == 1


def test_group_that_follows_from_another_is_not_kept() -> None:
    root = plan(
        "SELECT window_start, window_end, count(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '1' MINUTE) "
        "GROUP BY window_start, window_end",
        ViewCatalog(),
    )
    (aggregate,) = all_of(root, Aggregate)
    assert len(aggregate.groups) == 1


def test_root_is_a_projection_with_the_names_of_the_select_list() -> None:
    for statement in ("SELECT DISTINCT k AS a, x AS b FROM t", "SELECT k AS a, x AS b FROM t UNION SELECT k, x FROM u"):
        root = plan(statement)
        assert isinstance(root, Project)
        assert output_columns(root) == ("a", "b")


@pytest.mark.parametrize(
    ("statement", "operators"),
    [
        ("WITH c AS (SELECT k, count(*) AS n FROM t GROUP BY k) SELECT a.k FROM c a JOIN c b ON a.n = b.n + 1", 1),
        ("WITH c AS (SELECT k, x + 1 AS y FROM t WHERE x > 1) SELECT DISTINCT a.k FROM c a JOIN c b ON a.y = b.k", 1),
        ("SELECT a.n FROM (SELECT count(*) AS n FROM t) a JOIN (SELECT count(*) AS m FROM t) b ON a.n = b.m", 1),
        ("SELECT a.n FROM (SELECT count(*) AS n FROM t) a JOIN (SELECT count(*) AS m FROM u) b ON a.n = b.m", 2),
        ("SELECT a.n FROM (SELECT sum(x) AS n FROM t) a JOIN (SELECT sum(y) AS m FROM t) b ON a.n = b.m", 2),
    ],
)
def test_a_subquery_that_is_used_twice_is_computed_once(statement: str, operators: int) -> None:
    root = plan(statement)
    aggregates = [each for each in all_of(root, Aggregate) if each.calls] or all_of(root, Aggregate)
    assert len(set(aggregates)) == operators
