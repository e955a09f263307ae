"""What the editor of views says of a statement."""

from __future__ import annotations

import pytest

from penstock.console.data.statement_check import check_statements
from penstock.core.errors import InvalidRequest


def test_views_are_planned_with_key_columns_and_missing_queues() -> None:
    checked = check_statements(
        "CREATE QUEUE orders (customer string, amount decimal(18, 2));"
        "CREATE MATERIALIZED VIEW totals WITH (indexes = 'total') AS "
        "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer;"
        "SELECT t.customer, p.paid FROM totals t JOIN payments p ON p.customer = t.customer"
    )
    totals, draft = checked.views
    assert (totals.name, totals.columns, totals.key) == ("totals", ("customer", "total"), ("customer",))
    assert (totals.indexes, totals.changes_queue, totals.is_draft) == ((("total",),), "totals.changes", False)
    assert draft.is_draft
    assert draft.key == ()
    assert [node.name for node in draft.operators if node.kind in ("queue", "view")] == ["totals", "payments"]
    assert checked.queues == ["payments"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT count(*) AS n,\n a FROM o", "line 2, column 2: a is neither grouped nor aggregated"),
        ("CREATE SINK s FROM q TO 'file:x'", "CREATE SINK: only views are written here"),
        ("CREATE FUNCTION f AS 'os:system'", "CREATE FUNCTION: only views are written here"),
        ("CREATE REFERENCE r FROM 'crm.customers'", "CREATE REFERENCE: only views are written here"),
        ("CREATE QUERY q AS SELECT count(*) FROM o", "CREATE QUERY: only views are written here"),
        ("INSERT INTO q SELECT a FROM o", "INSERT INTO: only views are written here"),
        ("SELECT reflect('java.lang.System', 'exit', 1) AS x FROM o", "reflect calls any method of Java"),
        ("SELECT java_method('java.lang.System', 'exit', 1) AS x FROM o", "java_method calls any method of Java"),
        ("SELECT a FROM o WHERE", "it cannot be read"),
        ("x" * 100_001, "more than 100,000 characters"),
    ],
)
def test_errors_have_a_position_and_other_statements_are_refused(statement: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=r"[\s\S]*") as error:
        check_statements(statement)
    assert message in str(error.value)
