"""What is computed of closed windows: as Spark would, and never an error, whatever the events were."""

from __future__ import annotations

import json
from decimal import Decimal
from math import inf, isinf, isnan
from typing import Any

import psycopg
import pytest

from penstock.core.errors import InvalidRequest
from penstock.engine.compile import aggregate_columns
from penstock.engine.compile.aggregate_columns import ResultColumn, Shape, shape_of
from penstock.engine.cycle.prepare import _key_name
from penstock.engine.result_tables import ResultTables
from penstock.stream.definition import Definition

#: A closed window: aggregates of every type, as they are kept.
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
    # What does not fit is null, and so is a quotient by zero.
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
    # Numbers have room.
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
    # Without what is after the point, as Spark does it.
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
    # Digits.
    "round(speed, 1)": Decimal("0.1"),
    "round(big)": Decimal(12345678901234568),
    "round(total)": 3,
    "round(most, -3)": Decimal(9223372036854776000),
    "speed + 0.2": 0.3,
    "speed * 3 / 3": 0.1,
    "total % 2": Decimal("0.5"),
    "speed % 1": Decimal("0.1"),
    "total / n": Decimal("0.3571428571428571428571428571"),
    # Text, with every sign that means something to somebody on the way.
    "CASE WHEN n > 5 THEN '{hot}' ELSE '{n}' END": "{hot}",
    r"concat('{n} 100% ', name, ' \\ \' %s %(now)s')": r"{n} 100% Ünder_50% \ ' %s %(now)s",
    "name LIKE '%50%'": True,
    r"name LIKE '%r\\_50%' AND NOT name LIKE '{%}'": True,
    "n || '/' || total": "7/2.5",
    "concat(name, none)": None,
    "other < name": True,
    "greatest(name, other)": "Ünder_50%",
    "upper(name) = 'ÜNDER_50%'": True,
    "concat(at, '')": "2026-01-31 12:00:00.25",
    "from_utc_timestamp(at, 'Asia/Kathmandu')": "2026-01-31T17:45:00.25",
    "struct(n AS `it's {n}`)": {"it's {n}": 7},
}


def shape(fields: dict[str, str]) -> Shape:
    kept = [ResultColumn(name, kind, (), f"{{{name}}}") for name, (kind, _) in WINDOW.items()]
    made = Definition.from_("q").window_tumbling(seconds=1).aggregate(dict.fromkeys(WINDOW, "count(*)"))
    return shape_of(made.select(fields), kept)


@pytest.fixture
def asked(database_url_any: str) -> Any:
    """What a window is sent on as."""

    def ask(fields: dict[str, str]) -> Any:
        line = ResultTables(1, "q", [], shape=shape(fields))._line()
        given = ", ".join(f"%({name})s::{kind} AS {name}" for name, (kind, _) in WINDOW.items())
        values = {name: value for name, (_, value) in WINDOW.items()}
        with psycopg.connect(database_url_any) as conn:
            conn.execute("SET TimeZone = 'America/New_York'")
            row = conn.execute(f"SELECT {line} FROM (SELECT {given}) s".encode(), values).fetchone()  # noqa: S608
        assert row is not None
        return json.loads(row[0], parse_float=Decimal)

    return ask


def test_closed_windows_say_what_spark_would_and_null_where_there_is_no_answer(asked: Any) -> None:
    found = asked({f"{text} 100% {{n}}": text for text in CASES})
    expected = {
        f"{text} 100% {{n}}": Decimal(repr(value)) if isinstance(value, float) else value
        for text, value in CASES.items()
    }
    assert len(expected) > 50  # more than PostgreSQL makes an object of at once
    assert found == expected


def test_the_views_show_what_is_sent_on_also_under_the_name_of_an_aggregate() -> None:
    kept = [ResultColumn(name, "bigint", (), f"{{{slot}}}") for name, slot in (("n", "a0"), ("m", "a1"))]
    made = Definition.from_("q").window_tumbling(seconds=1).aggregate({"n": "count(*)", "m": "count(x)"})
    found = shape_of(made.select({"n": "n * 2", "half": "n / 2", "m": "m"}), kept)
    finals = {column.name: column.final for column in kept}
    assert finals == {**dict(found.fields), "m": "{a1}"}
    assert "a0" in finals["n"]
    assert "* 2" in finals["n"]
    assert "* 2" not in finals["half"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name LIKE other", "a pattern in quotes"),
        (r"name LIKE 'a\\'", "does not end with"),
        ("round(total, n)", "how many digits"),
        ("floor(total, 2)", "floor(x * 100) / 100"),
        ("CAST(n AS TINYINT)", "there are SMALLINT"),
        ("CAST(n AS DECIMAL(50, 2))", "38 digits"),
        ("from_utc_timestamp(at, 'Nowhere')", "is not known"),
        ("from_utc_timestamp(at, name)", "in quotes"),
        ("total * 1e4000", "no number that there is room for"),
        ("name = 'a\x00b'", "the character U+0000"),
    ],
)
def test_what_could_fail_when_a_window_closes_is_refused_before(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        shape({"it": text})
    assert reason in str(refused.value)


def test_doubles_of_every_size_are_added_up_without_an_error(database_url_any: str) -> None:
    sizes = [0.0, 5e-324, -5e-324, 1e-160, 0.1, 2.5, -1e100, 1e130, 1.7e308, -1.7e308, inf]
    merge = aggregate_columns._SUMMED_DOUBLE.replace("{s}", "s.x").replace("{p}", "p.x")
    joined = "penstock.join_moments(ARRAY[1, s.x, 0], ARRAY[3, p.x, 0])"
    question = f"SELECT s.x, p.x, {merge}, {joined} FROM unnest(%s::float8[]) s (x), unnest(%s::float8[]) p (x)"  # noqa: S608
    with psycopg.connect(database_url_any) as conn:
        found = conn.execute(question.encode(), [sizes, sizes]).fetchall()
    for one, other, total, (count, mean, spread) in found:
        assert total == one + other or (isinf(total) and isnan(one + other))
        assert count == 4
        if max(abs(one), abs(other)) < 1e120:
            assert mean == pytest.approx((one + 3 * other) / 4, rel=1e-12, abs=1e-140)
            assert spread == pytest.approx((one - other) ** 2 * 3 / 4, rel=1e-12, abs=1e-280)


def test_the_key_has_no_second_name_in_the_views_where_a_field_is_called_so() -> None:
    made = Definition.from_("q").key_by("who").window_tumbling(seconds=1).aggregate({"n": "count(*)"})
    assert _key_name(made, None) == "who"
    assert _key_name(made.select({"who": "key", "n": "n"}), None) is None
