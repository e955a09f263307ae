"""State that expires: after every cycle the result is DuckDB's answer over the events whose groups are left."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from penstock.stream.views.view_plan import Join, JoinKind
from tests.engine.views.compile.expiring_plans import SECOND, TTL_US, ExpiringCycles, ExpiringPlans
from tests.engine.views.compile.view_cycles import PlanRun

KINDS = ("aggregate", "top n", "over", "join")


@pytest.mark.parametrize("depth", [0, pytest.param(1, marks=pytest.mark.long), 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
def test_groups_without_a_change_expire_and_operators_above_follow(
    spark: SparkSession, database_url: str, seed: int, kind: str, depth: int
) -> None:
    chance = random.Random(f"{seed} {kind} {depth}")
    plans = ExpiringPlans(chance, kind)
    lowest = plans.lowest.operator
    run = PlanRun(spark, database_url, plans.plan(depth).operator if depth else lowest, ttl_us=TTL_US)
    cycles = ExpiringCycles(chance, run, lowest)
    for _ in range(6):
        run.now_us += chance.choice([0, 1, 2, 4]) * SECOND
        if chance.random() < 0.5:
            cycles.expire(is_single=chance.random() < 0.6, fails=chance.random() < 0.3)
        else:
            cycles.cycle(is_single=chance.random() < 0.6, fails=chance.random() < 0.2)
        cycles.check()
    run.now_us += TTL_US
    cycles.expire(is_single=chance.random() < 0.5)
    cycles.check()
    if not isinstance(lowest, Join) or (lowest.kind is JoinKind.INNER and not cycles.view.rows):
        assert run.state_rows(operator=1) == 0
