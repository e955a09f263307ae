"""Reference tables: a table's name, a query, a DataFrame or a function."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from penstock.stream.reference_tables import reference_table
from penstock.stream.steps import ReferenceTable
from tests.stream.spark_doubles import FRAME


@pytest.mark.parametrize(
    "source",
    ["customers", "crm.customers", 'db.crm."Odd name"', " crm.customers ; "],
)
def test_table_name(source: str) -> None:
    assert reference_table(source).query == f"TABLE {source.strip().removesuffix(';').strip()}"


@pytest.mark.parametrize(
    "source",
    [
        "SELECT 1",
        "\nwith a as (select 1) table a",
        "(select 1) union (select 2)",
        "-- why\nVALUES (1)",
        "/* x */ TABLE a",
    ],
)
def test_query(source: str) -> None:
    assert reference_table(source).query == source.strip()


@pytest.mark.parametrize(
    "source", [FRAME, lambda spark: FRAME, functools.partial(lambda spark: FRAME)], ids=["frame", "f", "partial"]
)
def test_frame_or_function(source: Any) -> None:
    assert reference_table(source) == ReferenceTable(frame=source)


def test_reference_table_is_returned_unchanged() -> None:
    made = ReferenceTable("TABLE a", refresh_seconds=1)
    assert reference_table(made) is made
