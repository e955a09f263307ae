"""``CREATE FUNCTION`` and the calls of Python functions, compiled without Spark."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from penstock.core.errors import InvalidRequest, InvalidSql
from penstock.stream.definition import Definition
from penstock.stream.fingerprint import describe
from penstock.stream.statements.statement_parser import parse_application


def base(path: str) -> str:
    return path.rpartition("/")[2]


def functions_of(statements: str) -> dict[str, str]:
    application = parse_application(Definition, statements, functions={"base": base})
    *_, query = application.queries.values()
    return {name: each.returns for name, each in query.stream.functions.items()}


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO out SELECT Base(path) AS name FROM files",
        "INSERT INTO out SELECT path FROM files WHERE base(path) = 'a'",
        "INSERT INTO out SELECT path FROM (SELECT path, base(path) AS b FROM files) WHERE b = 'a'",
        "CREATE QUERY q AS SELECT count(*) AS n FROM files GROUP BY window(at, '1 hour'), base(path)",
        "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM files GROUP BY base(path)",
        "CREATE MATERIALIZED VIEW v AS WITH w AS (SELECT base(path) AS b FROM files) SELECT max(b) AS b FROM w",
        "CREATE VIEW w AS SELECT base(path) AS b FROM files; CREATE VIEW x AS SELECT b FROM w;"
        "CREATE MATERIALIZED VIEW v AS SELECT max(b) AS b FROM x",
        "CREATE VIEW w AS SELECT base(path) AS b FROM files; INSERT INTO out SELECT b FROM w",
    ],
)
def test_a_query_has_the_functions_that_its_statement_and_its_views_call(statement: str) -> None:
    assert functions_of(statement) == {"base": "string"}


def test_a_query_that_calls_no_function_has_none() -> None:
    assert functions_of("INSERT INTO out SELECT base FROM files") == {}


def test_the_description_has_the_code_of_the_functions() -> None:
    def other(path: str) -> str:
        return path.lower()

    statement = "INSERT INTO out SELECT base(path) AS name FROM files"
    lines = [describe(Definition.sql(statement, functions={"base": each})) for each in (base, other)]
    assert [each[-2].partition(", code")[0] for each in lines] == ["function base: base", "function base: other"]
    assert lines[0][-2] != lines[1][-2]


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, "bigint"),
        (float | None, "double"),
        (bool, "boolean"),
        (Decimal, "decimal(38,18)"),
        (datetime, "timestamp"),
        (list[str], "array<string>"),
        (dict[str, list[int]], "map<string,array<bigint>>"),
    ],
)
def test_the_type_of_a_result_follows_from_the_annotation(annotation: Any, expected: str) -> None:
    def f(value: object) -> Any:
        return value

    f.__annotations__["return"] = annotation
    stream = Definition.sql("INSERT INTO out SELECT f(x) AS y FROM files", functions={"f": f})
    assert stream.functions["f"].returns == expected


def test_returns_is_the_type_of_a_result() -> None:
    application = parse_application(
        Definition,
        "CREATE FUNCTION text_of RETURNS struct<a: int, b: string> AS 'json:dumps';"
        "INSERT INTO out SELECT text_of(x) AS y FROM files",
    )
    assert application.queries["out"].stream.functions["text_of"].returns == "struct<a: int, b: string>"


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("CREATE FUNCTION f AS 'posixpath:missing'", "the module posixpath has no function missing"),
        ("CREATE FUNCTION f AS 'no_such_module:f'", "the module no_such_module cannot be imported: ModuleNotFound"),
        ("CREATE FUNCTION f AS 'posixpath.basename'", "does not name a function: write it like 'package.module:"),
        ("CREATE FUNCTION f AS 'json:dumps'", "the type of its result is not known. Annotate it"),
        ("CREATE FUNCTION f RETURNS strin AS 'json:dumps'", "strin is no type of Spark's"),
        ("CREATE FUNCTION f RETURNS AS 'json:dumps'", "a type is expected here"),
        ("CREATE FUNCTION sum RETURNS string AS 'json:dumps'", "Spark's SQL has this word already"),
        ("CREATE FUNCTION select RETURNS string AS 'json:dumps'", "Spark's SQL has this word already"),
        (
            "CREATE FUNCTION f RETURNS string AS 'json:dumps'; CREATE FUNCTION F RETURNS string AS 'json:dumps'",
            "the function 'f' is created twice",
        ),
        ("INSERT INTO out SELECT base() AS y FROM files", "missing a required argument: 'path'"),
        ("CREATE MATERIALIZED VIEW v AS SELECT base(a, b) AS y FROM files", "too many positional arguments"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused(statement: str, error: str) -> None:
    with pytest.raises(InvalidSql) as raised:
        parse_application(Definition, statement, functions={"base": base})
    assert error in str(raised.value)


async def later(path: str) -> str:
    return path


@pytest.mark.parametrize("given", [later, 1, "json:dumps", str, partial(base, "a")])
def test_a_registered_function_is_a_plain_annotated_function(given: Any) -> None:
    with pytest.raises(InvalidRequest, match="the function 'f'"):
        Definition.sql("INSERT INTO out SELECT f(x) AS y FROM files", functions={"f": given})
