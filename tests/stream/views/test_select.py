"""The rows of a plan are those of its SELECT, whatever the optimizer does."""

from __future__ import annotations

import pytest

from tests.stream.views.select_statements import STATEMENTS
from tests.stream.views.statements import check_rows, duckdb_statement, plan, random_tables

SEEDS = (1, 2, 5, 9)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_rows_equal_duckdb(statement: str) -> None:
    root = plan(statement)
    expected = duckdb_statement(statement)
    for seed in SEEDS:
        check_rows(random_tables(seed), root, expected)
