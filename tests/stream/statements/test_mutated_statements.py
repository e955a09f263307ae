"""A statement with tokens removed, repeated, moved or changed compiles or raises a PenstockError."""

from __future__ import annotations

import os
import random

import pytest

from penstock.core.errors import PenstockError
from penstock.stream.definition import Definition
from penstock.stream.fingerprint import describe, fingerprint
from penstock.stream.sql.dialect import StatementSql
from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.statements.statement_parser import parse_application

EXAMPLES = int(os.environ.get("PENSTOCK_TEST_MUTATIONS", "300"))

STATEMENTS = {
    "tumbling": "INSERT INTO out SELECT customer, window(at, '5 seconds') AS w, count(*) AS n, sum(amount) AS total "
    "FROM orders GROUP BY customer, window(at, '5 seconds') HAVING count(*) > 3 DISTRIBUTE BY customer",
    "sliding": "INSERT INTO out SELECT who, window(ts, '10 seconds', '5 seconds').start AS since, "
    "percentile_approx(amount, 0.5) AS p, round(avg(amount), 2) AS mean, count(DISTINCT who) AS d "
    "FROM orders o WHERE amount > 0 GROUP BY 1, window(ts, '10 seconds', '5 seconds')",
    "session": "INSERT INTO out SELECT user, session_window(ts, '5 minutes') AS s, count(*) AS n, first(page) AS page "
    "FROM (SELECT * FROM clicks UNION ALL SELECT * FROM taps) "
    "GROUP BY user, session_window(ts, '5 minutes') HAVING n > 2 AND user LIKE 'a%'",
    "calendar": "CREATE QUERY per_day WITH (late = 'drop') AS SELECT country, max(x) AS high, top_k(x, 3) AS often, "
    "date_trunc('day', from_utc_timestamp(ts, 'Europe/Rome')) AS day, count_if(x > 3) AS some, "
    "sum(a) / count(*) AS mean, coalesce(min(b), 0) AS low, count(*) FILTER (WHERE a > 1) AS f "
    "FROM clicks GROUP BY country, day",
    "join": "INSERT INTO paid SELECT o.id, o.total, p.method FROM orders o LEFT JOIN payments p ON o.id = p.order_id "
    "AND p.at BETWEEN o.at - INTERVAL '10 minutes' AND o.at + INTERVAL '10 minutes' WHERE p.amount >= o.total",
    "lateral": "INSERT INTO out WITH a AS (SELECT x, y, z.w AS v FROM q LATERAL VIEW explode(items) t AS z) "
    "SELECT x, CASE WHEN y > 1 THEN 'a' ELSE upper(v) END AS c, CAST(x AS decimal(10,2)) AS d FROM a",
    "file": "CREATE QUEUE orders (id bigint, at timestamp, amount decimal(18,2), tags array<string>, *) "
    "WITH (partitions = 4, retention_seconds = 3600); "
    "CREATE REFERENCE crm FROM 'crm.customers' WITH (refresh_seconds = 60, notify = 'c'); "
    "CREATE VIEW big AS SELECT * FROM orders WHERE amount > 10; "
    "CREATE QUERY paid WITH (max_events_per_cycle = 100) AS "
    "INSERT INTO out SELECT b.id, c.name FROM big b LEFT JOIN crm c ON b.id = c.id; "
    "CREATE SINK s FROM out TO 'file:out.jsonl' WITH (every = 60)",
}


def words(text: str) -> list[str]:
    """The tokens of a text, as they are written."""
    tokens = SqlSource(text, dialect=StatementSql).tokenize()
    return [text[token.start : token.end + 1] for token in tokens]


#: Tokens of all statements, and tokens that none has.
ANYTHING = [
    *sorted({word for text in STATEMENTS.values() for word in words(text)}),
    *("", "0", "0.5", "-1", "1e999", "''", "``", "NULL", "[", "]", "{", "}", "'\\'", "\0", "é", "x" * 3000),
]


def mutated(chance: random.Random, text: str) -> str:
    tokens = words(text)
    for _ in range(chance.choice((1, 1, 1, 2))):
        place, other = chance.randrange(len(tokens)), chance.randrange(len(tokens))
        match chance.randrange(5):
            case 0:
                del tokens[place]
            case 1:
                tokens.insert(place, tokens[other])
            case 2:
                tokens[place] = chance.choice(ANYTHING)
            case 3:
                tokens.insert(place, chance.choice(ANYTHING))
            case 4:
                end = place + chance.randrange(1, 7)
                moved, tokens[place:end] = tokens[place:end], []
                tokens[other:other] = moved
    return " ".join(tokens)


@pytest.mark.parametrize("name", STATEMENTS)
def test_mutated_statement_compiles_or_raises_a_penstock_error(name: str) -> None:
    assert parse_application(Definition, STATEMENTS[name]).queries
    for seed in range(EXAMPLES):
        text = mutated(random.Random(f"{name} {seed}"), STATEMENTS[name])
        try:
            for query in parse_application(Definition, text).queries.values():
                fingerprint(describe(query.stream))
        except PenstockError as error:
            if not 10 < len(str(error)) < 2000:
                pytest.fail(f"{str(error)[:200]!r} is too long or too short, for {text}")
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error}, for {text}")
