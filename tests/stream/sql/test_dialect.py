"""The dialects accept keywords as names, and parse everything else as sqlglot's Spark dialect does."""

from __future__ import annotations

import pytest
from sqlglot import exp
from sqlglot.dialects.spark import Spark

from penstock.stream.sql.dialect import SparkSql, StatementSql
from penstock.stream.sql.sql_source import SqlSource

QUERIES = [
    "SELECT a FROM t WHERE a NOT BETWEEN -1 AND -2 AND b IS NOT DISTINCT FROM -3 OR NOT -a > 1 AND d BETWEEN -b AND -c",
    "SELECT CASE WHEN -a > 1 THEN -1 WHEN -b THEN -2 ELSE -3 END, CASE a WHEN -1 THEN -2 END FROM t",
    "SELECT DISTINCT -a FROM t GROUP BY -a HAVING -sum(a) > -1 ORDER BY -a",
    "SELECT -a FROM t JOIN u ON -a = -b LEFT JOIN v ON +a = b CROSS JOIN w WHERE -a > 1 UNION ALL SELECT -1",
    "SELECT * FROM t LEFT SEMI JOIN u USING (a)",
    "SELECT a, *, u.* EXCEPT (c) FROM t, u",
    "SELECT count(*), count(DISTINCT -a) FROM t",
    "SELECT sum(-a) OVER (PARTITION BY -b ORDER BY -c ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
    "SELECT extract(year FROM -t), trim(BOTH 'x' FROM y), a LIKE 'x' ESCAPE '!' FROM t",
    "SELECT a FROM VALUES (-1), (2) AS t(a)",
    "SELECT a DIV -b, a % -b, a || -b, INTERVAL -1 DAY + x, -INTERVAL 1 DAY FROM t",
    "SELECT a IN (SELECT -b FROM u) AND EXISTS (SELECT * FROM v) AND c NOT IN (-1) AND d NOT LIKE 'x' FROM t",
    "WITH x AS (SELECT -1 AS a) SELECT * FROM x",
    "SELECT if(-a > 1, -b, +c), transform(xs, x -> -x), any(a), some(b), like(a, b) FROM t",
    "SELECT a FROM t LATERAL VIEW OUTER explode(-b) u AS c",
    "SELECT -a AS b, - b, + c, ~d, !e, (a, b) IN ((-1, -2)) FROM t",
    "SELECT a[-1], b['x'], c.d[0].e, array(-1)[0], map('a', -1)['a'] FROM t",
    "SELECT CAST(-a AS int), -a::double, try_cast(-b AS date), a IS NULL, a IS NOT NULL, a <=> -b FROM t",
    "INSERT INTO out SELECT a FROM t",
]


@pytest.mark.parametrize("text", QUERIES)
def test_queries_are_parsed_as_by_sqlglot(text: str) -> None:
    assert StatementSql().parse(text) == Spark().parse(text)


@pytest.mark.parametrize(
    ("text", "value"), [("'it''s'", "it's"), ("''''", "'"), ('"a""b"', 'a"b'), (r"'it\'s'", "it's"), (r"r'\d'", r"\d")]
)
def test_string_literals_are_read_as_by_spark_4(text: str, value: str) -> None:
    source = SqlSource(text)
    assert source.parse(source.tokenize(), exp.Expr).name == value


def test_names_of_functions_are_not_interpreted() -> None:
    (tree,) = SparkSql().parse_into(exp.Expr, "nvl(date_sub(a, 1), log10(parse_json(b)))")
    assert tree is not None
    assert tree.sql(SparkSql, normalize_functions=False) == "nvl(date_sub(a, 1), log10(parse_json(b)))"


def test_parse_json_is_printed() -> None:
    (tree,) = StatementSql().parse_into(exp.Expr, "parse_json(a)")
    assert tree is not None
    assert tree.sql("spark") == "PARSE_JSON(a)"


def test_percentile_keeps_its_third_argument() -> None:
    (tree,) = StatementSql().parse_into(exp.Expr, "percentile(a, 0.5, b)")
    assert isinstance(tree, exp.AggFunc)
    assert len(tree.expressions) == 3
