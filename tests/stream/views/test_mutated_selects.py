"""A SELECT with tokens removed, repeated, moved or changed is planned or raises a PenstockError."""

from __future__ import annotations

import os
import random

import pytest

from penstock.core.errors import PenstockError
from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.views.describe import describe_operators
from penstock.stream.views.view_catalog import ViewCatalog
from penstock.stream.views.view_dialect import ViewSql
from tests.stream.views.nexmark_statements import VIEWS
from tests.stream.views.select_statements import STATEMENTS
from tests.stream.views.statements import TABLES, check_plan, plan

EXAMPLES = int(os.environ.get("PENSTOCK_TEST_MUTATIONS", "300"))
CATALOGS = (ViewCatalog(), ViewCatalog(queues=TABLES))
ALL_STATEMENTS = [*STATEMENTS, *VIEWS.values()]


def words(text: str) -> list[str]:
    """The tokens of a text, as they are written."""
    return [text[token.start : token.end + 1] for token in SqlSource(text, dialect=ViewSql).tokenize()]


#: Tokens of all statements, and tokens that none has.
ANYTHING = [
    *sorted({word for text in ALL_STATEMENTS for word in words(text)}),
    *("", "0", "0.5", "-1", "1e999", "''", "``", "NULL", "[", "]", "{", "}", "'\\'", "\0", "é", "x" * 3000),
    *("ANY", "ALL", "LATERAL", "VIEW", "explode", "LIMIT", "QUALIFY", "WINDOW", "OVER", "EXISTS", "->", "::", "USING"),
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


@pytest.mark.parametrize("catalog", CATALOGS, ids=("undeclared", "declared"))
def test_mutated_select_is_planned_or_raises_a_penstock_error(catalog: ViewCatalog) -> None:
    planned = 0
    for seed in range(EXAMPLES):
        chance = random.Random(seed)
        text = mutated(chance, chance.choice(ALL_STATEMENTS))
        try:
            root = plan(text, catalog)
            check_plan(root)
            describe_operators(root)
            planned += 1
        except PenstockError as error:
            if not 10 < len(str(error)) < 2000:
                pytest.fail(f"{str(error)[:200]!r} is too long or too short, for {text}")
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error}, for {text}")
    assert planned > EXAMPLES / 20
