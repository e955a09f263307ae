"""A query's fingerprint changes when its result would, and never otherwise."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stream import aggregates as agg
from penstock.stream.code_hash import code_hash
from penstock.stream.definition import Definition
from penstock.stream.fingerprint import changes, describe, fingerprint, with_stored_order
from tests.stream.spark_doubles import COLUMN, FRAME

ORDERS = Definition.from_("orders")
WINDOWED = ORDERS.window_tumbling(seconds=5)


def function_in(source: str, name: str = "f") -> Any:
    """What source text defines as f, in a module of its own."""
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(source, "app.py", "exec"), names)  # noqa: S102 - our own text
    return names[name]


def same(a: str, b: str) -> bool:
    return code_hash(function_in(a)) == code_hash(function_in(b))


# Functions


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("f = lambda e: e['a'] > 1", "\n\n\nx = 1\nf = lambda e:   e['a'] > 1"),
        ("def f(e): return e", "# why\ndef f(e):\n    # because\n    return e"),
        ("def f(e): return e", "def f(e):\n    'Say what.'\n    return e"),
        ("f = lambda e: e", "def make():\n    return lambda e: e\nf = make()"),
        ("f = lambda e: [x for x in e]", "\nf = lambda e: [x for x in e]"),
        ("def g(): return 1\ndef f(e): return g()", "def f(e): return g()\n\n\ndef g(): return 1"),
        ("LIMIT = 1\nf = lambda e: e > LIMIT", "LIMIT = object()\nf = lambda e: e > LIMIT"),
    ],
)
def test_equal_code_has_equal_hashes(a: str, b: str) -> None:
    assert same(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("f = lambda e: e['a'] > 1", "f = lambda e: e['a'] > 2"),
        ("f = lambda e: e['a'] > 1", "f = lambda e: e['a'] >= 1"),
        ("f = lambda e: e['a'] > 1", "f = lambda e: e['b'] > 1"),
        ("f = lambda e: e['a'] == 1", "f = lambda e: e['a'] == True"),
        ("f = lambda e: e['a'] == 0.0", "f = lambda e: e['a'] == -0.0"),
        ("f = lambda e: e.a", "f = lambda e: e.b"),
        ("f = lambda e: [x for x in e]", "f = lambda e: [x for x in e if x]"),
        ("f = lambda e: e in {'a', 'b'}", "f = lambda e: e in {'a', 'c'}"),
        ("f = lambda e, n=1: e + n", "f = lambda e, n=2: e + n"),
        ("f = lambda e, *, n=1: e + n", "f = lambda e, *, n=2: e + n"),
        ("def g(): return 1\ndef f(e): return g()", "def g(): return 2\ndef f(e): return g()"),
        ("f = lambda e: int(e)", "f = lambda e: str(e)"),
        (
            "def f(e):\n try: return 1\n except ValueError: return 2",
            "def f(e):\n try: return 1\n except KeyError: return 2",
        ),
    ],
)
def test_different_code_has_different_hashes(a: str, b: str) -> None:
    assert not same(a, b)


def test_running_a_function_does_not_change_its_hash() -> None:
    function = function_in("def f(e):\n    return sum(x + e for x in range(e)) + e")
    before = code_hash(function)
    for number in range(200):
        function(number % 7)
    assert code_hash(function) == before


def over(value: Any) -> Callable[[Any], bool]:
    return lambda event: bool(event > value)


scalars = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.text(), st.binary(), st.datetimes(), st.timedeltas(), st.uuids()),
    *(st.floats(allow_nan=False), st.decimals(allow_nan=False)),
)
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=5,
)


@given(plain, plain)
def test_hash_includes_closed_over_values(a: Any, b: Any) -> None:
    assert code_hash(over(a)) == code_hash(over(a))
    if repr(a) != repr(b) and a != b:
        assert code_hash(over(a)) != code_hash(over(b))


def test_hash_ignores_the_order_of_mappings_and_sets() -> None:
    assert code_hash(over({"a": 1, "b": 2})) == code_hash(over({"b": 2, "a": 1}))
    assert code_hash(over({1, 2**61, "x"})) == code_hash(over({"x", 2**61, 1}))


def test_hash_of_other_objects_is_by_type() -> None:
    assert code_hash(over(object())) == code_hash(over(object()))
    assert code_hash(over(Path("/a"))) != code_hash(over(Path("/b")))


@dataclass
class Over:
    limit: int

    def __call__(self, event: Any) -> bool:
        return self._amount(event) > self.limit

    def _amount(self, event: Any) -> int:
        return int(event["amount"])

    def under(self, event: Any) -> bool:
        return not self(event)


class Kind(Enum):
    SALE = 1
    REFUND = 2


@pytest.mark.parametrize(
    ("a", "b"),
    [(Kind.SALE, Kind.REFUND), (re.compile("a"), re.compile("a", re.I)), (json, re), (Over(1), Over(2))],
    ids=["enum", "pattern", "module", "dataclass"],
)
def test_hash_includes_enums_patterns_modules_and_dataclasses(a: Any, b: Any) -> None:
    assert code_hash(over(a)) == code_hash(over(a))
    assert code_hash(over(a)) != code_hash(over(b))


def test_hash_includes_closed_over_functions() -> None:
    assert code_hash(over(lambda: 1)) != code_hash(over(lambda: 2))


def multiply(factor: float, event: Any, plus: int = 0) -> Any:
    return event * factor + plus


def test_hash_of_a_partial_includes_its_arguments() -> None:
    hashes = [
        code_hash(functools.partial(multiply, 2)),
        code_hash(functools.partial(multiply, 3)),
        code_hash(functools.partial(multiply, 2, plus=1)),
        code_hash(functools.partial(lambda factor, event: event, 2)),
    ]
    assert len(set(hashes)) == 4
    assert code_hash(functools.partial(multiply, 2)) == hashes[0]


class Slotted:
    __slots__ = ("limit", "unset")

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __call__(self, event: Any) -> bool:
        return bool(event > self.limit)


@pytest.mark.parametrize("kind", [Over, Slotted])
def test_hash_of_a_callable_object_includes_its_fields(kind: Any) -> None:
    assert code_hash(kind(1)) == code_hash(kind(1))
    assert code_hash(kind(1)) != code_hash(kind(2))


def test_hash_of_a_method_includes_its_object() -> None:
    assert code_hash(Over(1).under) == code_hash(Over(1).under)
    assert code_hash(Over(1).under) != code_hash(Over(2).under)
    assert code_hash(Over(1).under) != code_hash(Over(1))


CLASS = """
class Base:
    def amount(self, e): return e[{}]
class F(Base):
    def __call__(self, e): return self.amount(e)
f = F()
"""


METHOD = """
def is_large(amount):
    return amount > {limit}

class Model:
    def __init__(self):
        self.limit = {field}

    def predict(self, event):
        return self.score(event["amount"])

    def score(self, amount):
        return self.check(amount) and amount > self.limit

    @staticmethod
    def check(amount):
        return is_large(amount)

f = Model().predict
"""


def test_hash_of_a_method_includes_the_fields_and_methods_of_a_plain_object() -> None:
    method = METHOD.format(limit=1, field=1)
    assert same(method, "\n\n" + method)
    assert not same(method, METHOD.format(limit=2, field=1))
    assert not same(method, METHOD.format(limit=1, field=2))


def test_hash_of_a_callable_object_includes_its_methods() -> None:
    assert same(CLASS.format(1), "\n\n" + CLASS.format(1))
    assert not same(CLASS.format(1), CLASS.format(2))


def test_hash_includes_decorator_and_wrapped_function() -> None:
    def twice(function: Any) -> Any:
        return functools.wraps(function)(lambda event: function(function(event)))

    def once(function: Any) -> Any:
        return functools.wraps(function)(lambda event: function(event))

    assert code_hash(twice(abs)) != code_hash(once(abs))
    assert code_hash(once(lambda e: e)) != code_hash(once(lambda e: e + 1))
    assert code_hash(functools.cache(over(1))) != code_hash(functools.cache(over(2)))


def test_hash_of_builtins_and_classes_is_by_name() -> None:
    assert len({code_hash(function) for function in (len, abs, print, dict, int, str.upper, "a".join, "b".join)}) == 8


def test_recursive_code_has_a_hash() -> None:
    def endless(event: Any) -> Any:
        return endless(event)

    items: list[Any] = []
    items.append(items)
    assert code_hash(endless) == code_hash(endless)
    assert code_hash(over(items))


def test_shared_helpers_are_hashed_once() -> None:
    source = "def f0(e): return e\n" + "".join(f"def f{i}(e): return f{i - 1}(f{i - 1}(e))\n" for i in range(1, 60))
    source += "def g(e): return " + "+".join(f"f{i}(e)" for i in range(60)) + "\nf = g"
    assert len(code_hash(function_in(source))) == 12


SCRIPT = """
import functools
from penstock.stream import aggregates as agg
from penstock.stream.definition import Definition
from penstock.stream.fingerprint import describe, fingerprint

KINDS = {"a", "b", "c"}
class Rate:
    def __init__(self): self.names = {"x", "y", "z"}; self.lock = object()
    def __call__(self, e): return e["kind"] in {"p", "q", "r"} and e["kind"] in self.names
def make(names):
    return lambda e: e["kind"] in names
stream = (
    Definition.from_("orders").filter(make(KINDS)).map(functools.partial(lambda n, e: e, frozenset("abc")))
    .foreach(Rate()).window_tumbling(seconds=5, event_time=lambda e: e["at"])
    .aggregate({"n": agg.sum(lambda e: e["n"])}).to("x")
)
print(fingerprint(describe(stream)))
"""


def test_fingerprint_is_equal_in_another_process_and_file(tmp_path: Path) -> None:
    found = set()
    for seed, name, before in (("1", "app.py", ""), ("2", "other.py", "# moved\n\n")):
        (tmp_path / name).write_text(before + SCRIPT)
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        found.add(
            subprocess.run(
                [sys.executable, tmp_path / name], env=environment, capture_output=True, text=True, check=True
            ).stdout
        )
    assert len(found) == 1
    assert len(found.pop().strip()) == 64


# Streams


def test_description_has_a_line_for_each_part() -> None:
    stream = (
        Definition.from_("orders", "refunds", schema={"amount": "double"})
        .filter("amount >\n  0", name="paid")
        .map({"amount": "amount", "customer": "customer"})
        .enrich("crm.customers", on="customer")
        .sql("SELECT *, a * rate AS usd FROM stream JOIN fx USING (currency)", fx="fx", t=FRAME)
        .key_by("customer")
        .window_tumbling(seconds=5, event_time="at", grace_seconds=1.5, late="drop")
        .window_calendar(every="day", timezone="Europe/Rome")
        .aggregate({"total": "sum(amount)", "n": agg.count()})
        .to("totals", partition="customer")
    )
    assert describe(stream) == [
        "from: orders, refunds",
        "type amount: double",
        "filter paid: amount > 0",
        "map map-1: amount AS `amount`, customer AS `customer`",
        "lookup enrich-1: left join with TABLE crm.customers on customer",
        "sql sql-1: SELECT *, a * rate AS usd FROM stream JOIN fx USING (currency); fx is TABLE fx; t is a DataFrame",
        "key: customer",
        "window: tumbling 5 s",
        "window: each day in Europe/Rome",
        "time: the field at",
        "grace: 1.5 s",
        "allowed lateness: 0 s",
        "late events: drop",
        "aggregate total: sum(amount)",
        "aggregate n: count()",
        "to: totals, key customer",
    ]


def test_description_of_functions_has_name_and_code_hash() -> None:
    stream = ORDERS.map(lambda e: e, returns={"b": "int", "a": "date"}).foreach(Over(1)).enrich(multiply)
    lines = describe(stream)[1:]
    assert lines[0] == f"map map-1: lambda, code {code_hash(lambda e: e)}, returns a date, b int"
    assert lines[1] == f"foreach foreach-1: Over, code {code_hash(Over(1))}"
    assert lines[2].startswith("call enrich-1: multiply, code ")
    assert describe(ORDERS.filter(COLUMN))[1] == "filter filter-1: a"
    assert describe(WINDOWED.reduce(max, {"a": [1]}))[-1].endswith(', beginning with {"a":[1]}')


def count(stream: Definition) -> Definition:
    return stream.aggregate({"n": "count"})


DIFFERENT = {
    "the queue": Definition.from_("other"),
    "nothing": ORDERS,
    "a type": Definition.from_("orders", schema={"a": "int"}),
    "a filter": ORDERS.filter("a > 1"),
    "its text": ORDERS.filter("a > 2"),
    "its quoted text": ORDERS.filter("a > ' 2'"),
    "its quoted spaces": ORDERS.filter("a > '  2'"),
    "its quoted line": ORDERS.filter("a > '\n2'"),
    "two filters": ORDERS.filter("a > 1").filter("b > 1"),
    "in another order": ORDERS.filter("b > 1").filter("a > 1"),
    "a map": ORDERS.map("a > 1"),
    "a flat_map": ORDERS.flat_map("a > 1"),
    "a function": ORDERS.filter(lambda e: e > 1),
    "its code": ORDERS.filter(lambda e: e > 2),
    "a join": ORDERS.enrich("t", on="a"),
    "its fields": ORDERS.enrich("t", on="b"),
    "its kind": ORDERS.enrich("t", on="a", how="inner"),
    "its table": ORDERS.enrich("u", on="a"),
    "its frame": ORDERS.enrich(FRAME, on="a"),
    "its function": ORDERS.enrich(lambda spark: FRAME, on="a"),
    "a key": ORDERS.key_by("a"),
    "a window": count(WINDOWED),
    "its size": count(ORDERS.window_tumbling(seconds=5.000001)),
    "its time": count(ORDERS.window_tumbling(seconds=5, event_time=True)),
    "a field's time": count(ORDERS.window_tumbling(seconds=5, event_time="True")),
    "its grace": count(ORDERS.window_tumbling(seconds=5, grace_seconds=1234567.5)),
    "its grace, a bit": count(ORDERS.window_tumbling(seconds=5, grace_seconds=1234567.6)),
    "its lateness": count(ORDERS.window_tumbling(seconds=5, allowed_lateness_seconds=1)),
    "its policy": count(ORDERS.window_tumbling(seconds=5, late="include")),
    "an aggregate": WINDOWED.aggregate({"n": "sum(a)"}),
    "its name": WINDOWED.aggregate({"m": "count"}),
    "a percentile": WINDOWED.aggregate({"n": agg.percentile("a", 0.9999999)}),
    "its fraction": WINDOWED.aggregate({"n": agg.percentile("a", 1)}),
    "a fold": WINDOWED.reduce(lambda value, event: value, 0),
    "its initial": WINDOWED.reduce(lambda value, event: value, 1),
    "a sink": ORDERS.to("x"),
    "its key": ORDERS.to("x", partition="a"),
}


def test_streams_with_different_results_have_different_fingerprints() -> None:
    by_print: dict[str, str] = {}
    for what, stream in DIFFERENT.items():
        assert by_print.setdefault(fingerprint(describe(stream)), what) == what


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (ORDERS.filter("a > 1"), ORDERS.filter(" a  >\n1 -- why")),
        (ORDERS.filter(lambda e: e), ORDERS.filter(lambda e: e, retry_limit=9, timeout_seconds=1)),
        (ORDERS.enrich("t", on="a"), ORDERS.enrich("t", on="a", refresh_seconds=5, notify="t")),
        (count(WINDOWED), count(ORDERS.window_tumbling(seconds=5.0, idle_flush_seconds=9))),
        (WINDOWED.aggregate({"a": "count", "b": "sum(x)"}), WINDOWED.aggregate({"b": agg.sum("x"), "a": "count(*)"})),
        (Definition.from_("a", "b"), Definition.from_("b", "a")),
    ],
)
def test_streams_with_equal_results_have_equal_fingerprints(a: Definition, b: Definition) -> None:
    assert fingerprint(describe(a)) == fingerprint(describe(b))


def test_aggregates_are_in_the_order_of_the_tables() -> None:
    made = WINDOWED.aggregate({"total": "sum(a)", "n": agg.count(), "c": "count_if(a > 1)"})
    moved = WINDOWED.aggregate({"c": "count_if(a > 1)", "n": agg.count(), "total": "sum(a)"})
    assert list(with_stored_order(moved, describe(made), []).aggregates) == ["total", "n", "c"]
    # An earlier version has written them down by name, and made its tables in their order.
    by_name = sorted(describe(made))
    columns = ["key", "window_start", "window_end", "total", "n", "c", "updated_at"]
    assert list(with_stored_order(moved, by_name, columns).aggregates) == ["total", "n", "c"]
    assert changes(describe(made), describe(moved)) == ""


# What changed


def test_changes_show_old_and_new_lines_of_a_part() -> None:
    before = ORDERS.filter("amount > 10", name="big").window_tumbling(seconds=5).aggregate({"n": "count"})
    after = ORDERS.filter("amount > 20", name="big").window_tumbling(seconds=5, late="drop").aggregate({"n": "sum(a)"})
    assert changes(describe(before), describe(after)).splitlines() == [
        "- filter big: amount > 10",
        "+ filter big: amount > 20",
        "- late events: dead_letter",
        "+ late events: drop",
        "- aggregate n: count()",
        "+ aggregate n: sum(a)",
    ]


def test_changes_show_added_and_removed_parts() -> None:
    before = ORDERS.filter("a", name="x").filter("b", name="y").to("out")
    after = ORDERS.map("c", name="z").filter("d", name="y").to("out")
    assert changes(describe(before), describe(after)).splitlines() == [
        "- filter x: a",
        "- filter y: b",
        "+ filter y: d",
        "+ map z: c",
    ]


def test_changes_of_equal_descriptions_are_empty() -> None:
    assert changes(describe(ORDERS), describe(ORDERS)) == ""


lines = st.lists(
    st.sampled_from(["from: a", "from: b", "filter x: 1", "filter x: 2", "window: 5 s", "to: q"]), max_size=8
)


@given(lines, lines)
def test_changes_contain_every_added_and_removed_line(before: list[str], after: list[str]) -> None:
    told = changes(before, after).splitlines()
    kept = sorted(before)
    for line in told:
        if line.startswith("- "):
            kept.remove(line[2:])
    kept += [line[2:] for line in told if line.startswith("+ ")]
    assert sorted(kept) == sorted(after)
    assert bool(told) == (before != after)
