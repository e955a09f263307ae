"""What a view cannot have is refused by name, with what to write instead and where."""

from __future__ import annotations

import pytest

from penstock.core.errors import InvalidSql
from penstock.stream.views.view_catalog import ViewCatalog
from tests.stream.views.statements import TABLES, plan

#: Statements by what the message has. The position of the error is marked with ^.
REFUSALS = [
    ("SELECT r.k FROM ^r", "r is a reference table, whose changes a view does not follow: join a queue with it"),
    ("SELECT max(k) AS k FROM t WHERE x > (SELECT max(r.x) FROM ^r)", "r is a reference table, whose changes"),
    ("SELECT t.id FROM t FULL JOIN ^r ON r.k = t.k", "write JOIN or LEFT JOIN r"),
    ("SELECT t.id FROM ^r LEFT JOIN t ON r.k = t.k", "write JOIN or LEFT JOIN r"),
    (
        "SELECT g.n FROM (SELECT k, count(*) AS n FROM t GROUP BY k) g JOIN ^r ON r.k = g.k",
        "join the events with it before, FROM (SELECT ... FROM queue q JOIN r t ON ...)",
    ),
    ("SELECT g.k FROM (SELECT DISTINCT k FROM t) g WHERE g.k IN (SELECT r.k FROM ^r)", "r is a reference table"),
    ("SELECT r.k FROM ^r JOIN r AS s ON r.k = s.k", "join them in one CREATE REFERENCE ... AS SELECT"),
    ("SELECT ^r.* FROM t JOIN r ON r.k = t.k", "the columns of * are not known for r: name them"),
    ("SELECT id, ^x FROM t GROUP BY id", "x is neither grouped nor aggregated: add it to GROUP BY, or write any_value"),
    ("SELECT sum(^sum(x)) AS s FROM t", "an aggregate takes no other aggregate"),
    ("SELECT id FROM t WHERE ^sum(x) > 1", "write HAVING sum(...)"),
    ("SELECT id FROM t WHERE ^rank() OVER (ORDER BY x) < 3", "write QUALIFY"),
    ("SELECT k FROM t GROUP BY k HAVING ^rank() OVER (ORDER BY k) < 3", "write QUALIFY"),
    ("SELECT ^collect_list(x) AS l FROM t", "collect_list is no aggregate of views; there are count"),
    ("SELECT ^percentile(x, 0.9) AS p FROM t", "write percentile_disc(0.9) WITHIN GROUP (ORDER BY x)"),
    ("SELECT ^percentile_disc(0.9) WITHIN GROUP (ORDER BY x DESC) AS p FROM t", "takes no DESC"),
    ("SELECT ^stddev(DISTINCT x) AS d FROM t", "stddev takes no DISTINCT"),
    ("SELECT ^row_number() OVER (PARTITION BY k) AS r FROM t", "row_number needs an order"),
    ("SELECT ^count(DISTINCT x) OVER (PARTITION BY k) AS r FROM t", "count(DISTINCT ...) OVER is not supported"),
    ("SELECT ^upper(s) OVER (PARTITION BY k) AS r FROM t", "upper is no function for OVER"),
    ("SELECT sum(x) OVER ^w AS r FROM t", "there is no window 'w'"),
    ("SELECT id FROM t ORDER BY ^x", "ORDER BY without LIMIT"),
    ("SELECT id FROM t ORDER BY x LIMIT ^0", "LIMIT takes a whole number from 1"),
    ("SELECT id FROM t ORDER BY x FETCH FIRST ^2 ROWS WITH TIES", "FETCH FIRST with PERCENT or WITH TIES"),
    ("SELECT id, (SELECT x FROM u ORDER BY x FETCH FIRST 2 ROWS ONLY) AS y FROM t", "this subquery may return several"),
    ("SELECT id FROM t ORDER BY x LIMIT 2 OFFSET ^3", "OFFSET: use LIMIT in the view"),
    ("SELECT DISTINCT k FROM t ORDER BY ^x LIMIT 2", "ORDER BY of SELECT DISTINCT takes columns of the select list"),
    ("SELECT id FROM t WHERE x > 1 OR EXISTS (SELECT ^1 FROM u)", "EXISTS is a condition of WHERE or HAVING"),
    ("SELECT id, k IN (SELECT ^k FROM u) AS b FROM t", "IN (SELECT ...) is a condition of WHERE or HAVING"),
    ("SELECT id FROM t WHERE x = ANY (SELECT ^x FROM u)", "ANY (SELECT ...) is not supported: write IN"),
    ("SELECT id FROM t WHERE x >= ALL (SELECT ^x FROM u)", "ALL (SELECT ...) is not supported: write NOT EXISTS"),
    ("SELECT id FROM t WHERE (^x, y) NOT IN (SELECT x, y FROM u)", "write NOT EXISTS instead"),
    ("SELECT id FROM t WHERE x NOT IN (SELECT ^x FROM u WHERE u.k = t.k)", "write NOT EXISTS instead"),
    ("SELECT id FROM t WHERE x IN (SELECT ^x, y FROM u)", "IN compares 1 values with 2 columns"),
    ("SELECT id, (SELECT ^x FROM u) AS a FROM t", "may return several rows: write an aggregate"),
    ("SELECT id, (SELECT ^x FROM u WHERE u.k = t.k) AS a FROM t", "is an aggregate in an expression"),
    ("SELECT id, (SELECT max(x) FROM u WHERE u.^y < t.y) AS a FROM t", "with =: t.id = o.id"),
    (
        "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM (SELECT k FROM u WHERE u.k = t.^k) z)",
        "the SELECT around this one",
    ),
    ("SELECT id FROM t WHERE k IN (SELECT max(u.k) FROM u WHERE u.x = t.^x)", "the SELECT around this one"),
    ("SELECT t.id FROM t JOIN u ON t.^k IN (SELECT k FROM v)", "a subquery in ON is not supported"),
    ("SELECT t.id FROM t JOIN u ON ^sum(t.x) = u.x", "ON is computed for single rows"),
    ("SELECT t.id FROM t NATURAL JOIN ^u", "NATURAL JOIN is not supported"),
    ("SELECT id FROM (^t JOIN u USING (k))", "joins in parentheses are not supported"),
    ("SELECT k FROM t INTERSECT ALL SELECT k FROM u", "INTERSECT ALL is not supported"),
    ("SELECT id, x FROM t UNION SELECT ^id FROM u", "the first SELECT has 2 columns, and this one has 1"),
    ("SELECT k FROM t UNION SELECT k FROM u ORDER BY ^x LIMIT 2", "ORDER BY after a set operation takes a column: k"),
    ("SELECT k FROM t GROUP BY ROLLUP (^k)", "ROLLUP: a view is grouped in one way"),
    ("SELECT DISTINCT ON (^k) id FROM t", "DISTINCT ON: write SELECT ... QUALIFY row_number()"),
    ("SELECT id, ^now() AS n FROM t", "now changes with every call"),
    ("SELECT id FROM t WHERE ^rand() < 0.1", "rand changes with every call"),
    ("SELECT ^explode(x) AS e FROM t", "write FROM ... LATERAL VIEW explode(values) t AS value"),
    ("SELECT count(*) AS n FROM t GROUP BY ^session_window(x, '5 minutes')", "needs windows that close"),
    ("SELECT id FROM SESSION(TABLE ^t, DESCRIPTOR(x), INTERVAL '5' MINUTE)", "needs windows that close"),
    ("SELECT id FROM TUMBLE(TABLE ^t, INTERVAL '5' MINUTE)", "TUMBLE is written TUMBLE(TABLE bids, DESCRIPTOR"),
    ("SELECT ^x + 1 FROM t", "name the column: x + 1 AS name"),
    ("SELECT id AS a, ^x AS A FROM t", "two columns are called 'A'"),
    ("SELECT ^nope FROM t", "there is no column 'nope'; t has id, k, x, y, s"),
    ("SELECT ^id FROM t, u", "id is a column of several relations: write t.id or u.id"),
    ("SELECT t.id FROM t JOIN ^t ON t.id = t.k", "two relations are called t"),
    ("SELECT id FROM t GROUP BY ^3", "GROUP BY 3: the select list has 1 columns"),
    ("SELECT 1 AS a", "the SELECT reads nothing"),
]


@pytest.mark.parametrize(("marked", "message"), REFUSALS)
def test_refusal_names_the_cause_and_the_position(marked: str, message: str) -> None:
    with pytest.raises(InvalidSql) as error:
        plan(marked.replace("^", ""))
    assert message in str(error.value)
    if "^" in marked:
        assert (error.value.line, error.value.column) == (1, marked.index("^") + 1)


def test_position_is_in_the_text_around_the_select() -> None:
    with pytest.raises(InvalidSql) as error:
        plan("WITH c AS (\n    SELECT k, x FROM t\n)\nSELECT k,\n  nope\nFROM c")
    assert (error.value.line, error.value.column) == (5, 3)


def test_unknown_columns_must_be_qualified_if_two_queues_may_have_them() -> None:
    with pytest.raises(InvalidSql, match=r"qualify price, because it is not known .* a\.price or b\.price"):
        plan("SELECT price FROM a JOIN b ON a.id = b.id", ViewCatalog())


def test_field_of_an_undeclared_queue_is_written_in_one_way() -> None:
    with pytest.raises(InvalidSql, match="a field is written price and Price"):
        plan("SELECT price, Price * 2 AS double FROM bids", ViewCatalog())


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN", "FULL JOIN"])
def test_two_columns_of_a_star_must_not_have_one_name(join: str) -> None:
    with pytest.raises(InvalidSql, match="two columns of \\* are called 'id'"):
        plan(f"SELECT * FROM t {join} u ON t.k = u.k", ViewCatalog(queues=TABLES))  # noqa: S608
