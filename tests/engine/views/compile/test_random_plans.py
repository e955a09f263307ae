"""Random plans give DuckDB's answer after every cycle, however the events are divided into cycles.

Set PENSTOCK_TEST_VIEW_PLANS to run more plans of each depth.
"""

from __future__ import annotations

import os
import random

import pytest
from pyspark.sql import SparkSession

from tests.engine.views.compile.random_plans import PlanGenerator
from tests.engine.views.compile.view_cycles import PlanRun, RandomCycles

_PLANS = int(os.environ.get("PENSTOCK_TEST_VIEW_PLANS", "4"))


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(_PLANS))
def test_a_random_plan_gives_the_answer_of_duckdb_after_every_cycle(
    spark: SparkSession, database_url: str, depth: int, seed: int
) -> None:
    chance = random.Random(f"{depth} {seed}")
    plan = PlanGenerator(chance).plan(depth)
    cycles = RandomCycles(chance, PlanRun(spark, database_url, plan.operator))
    for _ in range(4):
        cycles.cycle(is_single=chance.random() < 0.6, fails=chance.random() < 0.2)
        cycles.check()
