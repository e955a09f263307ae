from __future__ import annotations

import os

import pytest

from tests.stream.views.random_statements import RandomStatements
from tests.stream.views.statements import check_rows, duckdb_statement, plan, random_tables

STATEMENTS = int(os.environ.get("PENSTOCK_TEST_STATEMENTS", "100"))


@pytest.mark.parametrize("seed", range(STATEMENTS))
def test_rows_of_random_statements_equal_duckdb(seed: int) -> None:
    statement = RandomStatements(seed).select(depth=3).sql
    root = plan(statement)
    for rows in (8, 9):
        check_rows(random_tables(rows), root, duckdb_statement(statement))
