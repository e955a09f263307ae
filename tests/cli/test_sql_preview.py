"""``penstock sql --preview``: the rows of views and streams from the newest events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine

STATEMENTS = """
CREATE QUEUE orders (customer string, amount decimal(18, 2));
CREATE MATERIALIZED VIEW totals AS SELECT customer, sum(amount) AS total FROM orders GROUP BY customer;
INSERT INTO large SELECT customer, amount FROM orders WHERE amount > 10;
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_preview_computes_each_query_and_stores_nothing(tmp_path: Path, database_url: str) -> None:
    penstock = CommandLine(database_url)
    file = tmp_path / "views.sql"
    file.write_text(STATEMENTS)
    penstock.ok("queue", "create", "orders", "--partitions", "1")
    for customer, amount in (("ada", 5.5), ("ada", 20.25), ("bob", 1)):
        penstock.ok("queue", "push", "orders", json.dumps({"customer": customer, "amount": amount}))
    master = ("--master", "local[1]")
    process = penstock.start("sql", str(file), "--preview", "100", "--json", *master)
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    previews = json.loads(out)
    assert sorted(previews["totals"]["rows"], key=str) == [
        {"customer": "ada", "total": 25.75},
        {"customer": "bob", "total": 1},
    ]
    assert [row["amount"] for row in previews["large"]["rows"]] == [20.25]
    assert json.loads(penstock.ok("query", "list", "--json")) == []
