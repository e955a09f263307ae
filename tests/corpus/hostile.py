"""Hostile names and values. Cases that have broken something stay here."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

#: Names and keys that would change a statement that is assembled from text.
NAMES = (
    "'; DROP TABLE penstock.queues; --",
    '"; DROP TABLE penstock.queues; --',
    "$$; DROP TABLE penstock.queues; --",
    "') OR 1=1 --",
    '") OR ("1"="1',
    "%s",
    "%(name)s",
    "{chunks}",
    "{0}",
    "{id}",
    "{view}",
    "{values}",
    "$1",
    ":name",
    "\\",
    "\\'",
    "a\\b",
    "back`tick",
    "/* comment",
    "-- comment",
    "semi;colon",
    "penstock.queues",
    "pg_catalog",
    "../../etc/passwd",
    "..",
    "a/b",
    "name\twith\ttabs",
    "<script>alert(1)</script>",
    "\u202egnirts",
    "\U0001f600",
    "SELECT",
    "NULL",
    "null",
    "*",
    "?",
    "A" * 200,
)

#: Texts that names and keys must not be.
UNSTORABLE = ("", "\0", "a\0b", "\ud800", "x" * 100_000)


class Awkward:
    """Raises when it is printed."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def raises(*_: Any) -> None:
    """Take any arguments and raise."""
    raise ValueError("on purpose")


#: Values of a wrong type or with a hostile content.
VALUES: tuple[Any, ...] = (
    *NAMES,
    *UNSTORABLE,
    None,
    True,
    False,
    0,
    -1,
    1,
    0.5,
    -0.0,
    2**31,
    2**63,
    10**400,
    1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("1e999999"),
    1j,
    b"bytes",
    bytearray(b"x"),
    (),
    [],
    {},
    set(),
    [[]],
    [None],
    {1: 2},
    {"": ""},
    {"a": None},
    {None: "a"},
    {"a b": "c"},
    object(),
    Awkward(),
    Awkward,
    raises,
    lambda: None,
    len,
    date(2026, 1, 1),
    datetime(2026, 1, 1),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-23))),
    timedelta.max,
    range(3),
    iter(()),
    "(",
    ")",
    "a +",
    "a, b",
    "a; b",
    "sum(",
    "count() FROM x",
    "a AS b AS c",
    "`",
    '"',
    "'",
    "select",
    "SELECT 1; SELECT 2",
    "SELECT * FROM stream; DROP TABLE x",
    "WITH x AS (SELECT 1) DELETE FROM y",
    "INSERT INTO x VALUES (1)",
    "a.b..c",
    ".",
    "http://",
    "http://[::1",
    "file:///etc/passwd",
    "gopher://127.0.0.1/",
    "http://a b/",
    "http://\r\nHost: b/",
    "Europe/Nowhere",
    "../UTC",
    "PT5M",
    "5 seconds",
)
