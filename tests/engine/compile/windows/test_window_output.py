"""Fields of closed windows are computed by PostgreSQL like by Spark, and never raise an error."""

from __future__ import annotations

import json
from decimal import Decimal
from math import inf, isinf, isnan
from typing import Any

import psycopg
import pytest

from penstock.core.errors import InvalidRequest
from penstock.engine.compile.windows.aggregate_columns import MERGE_DOUBLE_SUMS, ResultColumn
from penstock.engine.compile.windows.window_output import WindowOutput, window_output
from penstock.engine.cycle.query_setup import key_column_name
from penstock.engine.results.result_tables import ResultTables
from penstock.stream.definition import Definition

#: The aggregates of a closed window: type and value.
WINDOW: dict[str, tuple[str, Any]] = {
    "n": ("bigint", 7),
    "zero": ("bigint", 0),
    "most": ("bigint", 2**63 - 1),
    "total": ("numeric", Decimal("2.5")),
    "huge": ("numeric", Decimal("9e37")),
    "speed": ("double precision", 0.1),
    "vast": ("double precision", 1.7e308),
    "tiny": ("double precision", 5e-324),
    "big": ("double precision", 12345678901234567.0),
    "name": ("text", "Ünder_50%"),
    "other": ("text", "zebra"),
    "word": ("text", "12"),
    "broken": ("text", "2.5"),
    "at": ("timestamptz", "2026-01-31 12:00:00.250+00"),
    "yes": ("boolean", True),
    "none": ("numeric", None),
}

CASES: dict[str, Any] = {
    # A value that does not fit is null, and so is a division by zero.
    "CAST(huge AS INT)": None,
    "CAST(huge AS BIGINT) + 1": None,
    "CAST(name AS INT)": None,
    "TRY_CAST(name AS DECIMAL(10, 2))": None,
    "TRY_CAST(name AS DOUBLE)": None,
    "CAST(name AS TIMESTAMP)": None,
    "CAST('2026-02-31' AS DATE)": None,
    "CAST(huge AS DECIMAL(10, 2))": None,
    "n % zero": None,
    "mod(total, zero)": None,
    "n / zero": None,
    "none % n": None,
    "CAST(most AS TIMESTAMP)": None,
    # Intermediate results do not overflow.
    "most + most": Decimal(2**64 - 2),
    "most * n": Decimal(7 * (2**63 - 1)),
    "CAST(n AS INT) * 2147483647 * 2147483647": Decimal(7 * 2147483647**2),
    "-most - most": Decimal(2 - 2**64),
    "abs(-most - 1)": Decimal(2**63),
    "vast * vast": None,
    "vast + vast - vast": 1.7e308,
    "tiny / n": 0,
    "CAST(n AS DOUBLE) * vast": None,
    "n / n / huge / huge / huge": 0,
    # Casts truncate, like in Spark.
    "CAST(total AS INT)": 2,
    "CAST(-total AS BIGINT)": -2,
    "CAST(total / n * 7 AS INT)": 2,
    "CAST(word AS INT) + 1": 13,
    "CAST(broken AS INT)": None,
    "CAST(broken AS DOUBLE)": 2.5,
    "CAST(total AS DECIMAL)": 3,
    "CAST(yes AS INT)": 1,
    "CAST(n AS BOOLEAN)": True,
    "CAST('no' AS BOOLEAN)": False,
    "CAST(NULL AS INT)": None,
    "CAST(at AS BIGINT)": 1769860800,
    "CAST(at AS STRING)": "2026-01-31 12:00:00.25",
    "CAST(at AS DATE)": "2026-01-31",
    "CAST('2026-01-31 12:00' AS TIMESTAMP) < at": True,
    "CAST(total AS STRING)": "2.5",
    # Rounding and precision.
    "round(speed, 1)": Decimal("0.1"),
    "round(big)": Decimal(12345678901234568),
    "round(total)": 3,
    "round(most, -3)": Decimal(9223372036854776000),
    "speed + 0.2": 0.3,
    "speed * 3 / 3": 0.1,
    "total % 2": Decimal("0.5"),
    "speed % 1": Decimal("0.1"),
    "total / n": Decimal("0.3571428571428571428571428571"),
    # Text with characters that are special in SQL, in format strings or in templates.
    "CASE WHEN n > 5 THEN '{hot}' ELSE '{n}' END": "{hot}",
    r"concat('{n} 100% ', name, ' \\ \' %s %(now)s')": r"{n} 100% Ünder_50% \ ' %s %(now)s",
    "name LIKE '%50%'": True,
    r"name LIKE '%r\\_50%' AND NOT name LIKE '{%}'": True,
    "n || '/' || total": "7/2.5",
    "concat(name, none)": None,
    "other < name": True,
    "greatest(name, other)": "Ünder_50%",
    "upper(name) = 'ÜNDER_50%'": True,
    "upper('straße ﬃ')": "STRASSE FFI",
    "lower('ΟΔΟΣ İ')": "οδος i\u0307",
    "concat(at, '')": "2026-01-31 12:00:00.25",
    "from_utc_timestamp(at, 'Asia/Kathmandu')": "2026-01-31T17:45:00.25",
    "struct(n AS `it's {n}`)": {"it's {n}": 7},
}


def compile_output(fields: dict[str, str]) -> WindowOutput:
    columns = [ResultColumn(name, kind, (), f"{{{name}}}") for name, (kind, _) in WINDOW.items()]
    made = Definition.from_("q").window_tumbling(seconds=1).aggregate(dict.fromkeys(WINDOW, "count(*)"))
    return window_output(made.select(fields), columns)


@pytest.fixture
def emit(database_url_any: str) -> Any:
    """Computes the event of the window."""

    def emit_window(fields: dict[str, str]) -> Any:
        event = ResultTables(1, "q", [], output=compile_output(fields)).event_sql()
        columns = ", ".join(f"%({name})s::{kind} AS {name}" for name, (kind, _) in WINDOW.items())
        values = {name: value for name, (_, value) in WINDOW.items()}
        with psycopg.connect(database_url_any) as conn:
            conn.execute("SET TimeZone = 'America/New_York'")
            row = conn.execute(f"SELECT {event} FROM (SELECT {columns}) s".encode(), values).fetchone()  # noqa: S608
        assert row is not None
        return json.loads(row[0], parse_float=Decimal)

    return emit_window


def test_expressions_have_the_values_of_spark_or_null(emit: Any) -> None:
    event = emit({f"{text} 100% {{n}}": text for text in CASES})
    expected = {
        f"{text} 100% {{n}}": Decimal(repr(value)) if isinstance(value, float) else value
        for text, value in CASES.items()
    }
    assert len(expected) > 50  # more than one call of json_build_object takes
    assert event == expected


def test_views_show_the_selected_fields_also_under_the_name_of_an_aggregate() -> None:
    columns = [ResultColumn(name, "bigint", (), f"{{{slot}}}") for name, slot in (("n", "a0"), ("m", "a1"))]
    made = Definition.from_("q").window_tumbling(seconds=1).aggregate({"n": "count(*)", "m": "count(x)"})
    output = window_output(made.select({"n": "n * 2", "half": "n / 2", "m": "m"}), columns)
    finals = {column.name: column.final for column in columns}
    assert finals == {**dict(output.fields), "m": "{a1}"}
    assert "a0" in finals["n"]
    assert "* 2" in finals["n"]
    assert "* 2" not in finals["half"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name LIKE other", "a pattern in quotes"),
        (r"name LIKE 'a\\'", "does not end with"),
        ("round(total, n)", "takes the digits as a number"),
        ("floor(total, 2)", "floor(x * 100) / 100"),
        ("CAST(n AS TINYINT)", "there are SMALLINT"),
        ("CAST(n AS DECIMAL(50, 2))", "38 digits"),
        ("from_utc_timestamp(at, 'Nowhere')", "is not known"),
        ("from_utc_timestamp(at, name)", "in quotes"),
        ("total * 1e4000", "too large or too small a number"),
        ("name = 'a\x00b'", "the character U+0000"),
    ],
)
def test_expressions_that_could_fail_when_a_window_closes_are_rejected(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest) as rejected:
        compile_output({"it": text})
    assert reason in str(rejected.value)


def test_sums_of_doubles_never_raise_an_error(database_url_any: str) -> None:
    sizes = [0.0, 5e-324, -5e-324, 1e-160, 0.1, 2.5, -1e100, 1e130, 1.7e308, -1.7e308, inf]
    merge = MERGE_DOUBLE_SUMS.replace("{state}", "s.x").replace("{partial}", "p.x")
    moments = "penstock.join_moments(ARRAY[1, s.x, 0], ARRAY[3, p.x, 0])"
    query = f"SELECT s.x, p.x, {merge}, {moments} FROM unnest(%s::float8[]) s (x), unnest(%s::float8[]) p (x)"  # noqa: S608
    with psycopg.connect(database_url_any) as conn:
        rows = conn.execute(query.encode(), [sizes, sizes]).fetchall()
    for one, other, total, (count, mean, spread) in rows:
        assert total == one + other or (isinf(total) and isnan(one + other))
        assert count == 4
        if max(abs(one), abs(other)) < 1e120:
            assert mean == pytest.approx((one + 3 * other) / 4, rel=1e-12, abs=1e-140)
            assert spread == pytest.approx((one - other) ** 2 * 3 / 4, rel=1e-12, abs=1e-280)


def test_the_key_column_has_no_second_name_that_a_field_has() -> None:
    made = Definition.from_("q").key_by("who").window_tumbling(seconds=1).aggregate({"n": "count(*)"})
    assert key_column_name(made, None) == "who"
    assert key_column_name(made.select({"who": "key", "n": "n"}), None) is None
