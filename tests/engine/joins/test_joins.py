"""Stream-stream joins: the pairs equal those of DuckDB, for any cycles and lost drivers."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest

from penstock import Stream
from penstock.engine.driver.loop import SMALL_EVENTS
from tests.conditions import eventually
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, drivers_lost

EXAMPLES = int(os.environ.get("PENSTOCK_TEST_JOIN_EXAMPLES", "2"))
RULES: dict[str, Any] = {"event_time": "ts", "idle_flush_seconds": NEVER_IDLE}


def events(chance: random.Random, count: int, name: str, disorder: float = 4.0) -> list[tuple[str, dict[str, Any]]]:
    """Events in about the order of their times; some have no join key."""
    generated = []
    for i in range(count):
        key = chance.choice(["a", "b", "c", "d", None])
        time = round(T0 + i / 4 + chance.random() * disorder, 3)
        generated.append(
            (f"{name}{chance.randrange(6)}", {"k": key, "n": chance.randrange(3), "id": f"{name}{i}", "ts": time})
        )
    return generated


def oracle(left: list[Any], right: list[Any], how: str, before: float, after: float) -> Counter[Any]:
    conn = duckdb.connect()
    for name, inputs in (("l", left), ("r", right)):
        rows = [{"k": e["k"], "n": e["n"], "id": e["id"], "ts": round(e["ts"] * 1000)} for _, e in inputs]
        conn.register(name, pa.Table.from_pylist(rows))
    expected = conn.execute(
        f"SELECT l.id, r.id FROM l {how} JOIN r ON l.k = r.k AND l.n = r.n "  # noqa: S608
        f"AND r.ts BETWEEN l.ts - {round(before * 1000)} AND l.ts + {round(after * 1000)}"
    )
    return Counter(expected.fetchall())


def pairs(bench: Bench, queue: str = "pairs") -> Counter[Any]:
    return Counter((event["l"], event["r"]) for event in bench.emitted(queue))


def joined(how: str, before: float, after: float, **rules: Any) -> Any:
    pairs = Stream.from_("lefts").join(
        Stream.from_("rights"), on=["k", "n"], within=(before, after), how=how, **{**RULES, **rules}
    )
    return pairs.map("left.id AS l, right.id AS r").to("pairs")


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_pairs_equal_those_of_duckdb_with_random_cycles_and_lost_drivers(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    how = ("inner", "left")[seed % 2]
    before, after = chance.choice([(0, 5), (3, 3), (0.5, 8)])
    left, right = events(chance, 160, "l"), events(chance, 160, "r")
    for queue in ("lefts", "rights"):
        bench.queue(queue, partitions=3)
    stream = joined(how, before, after, allowed_lateness_seconds=30)
    # Small cycles delete few expired rows, so that these stay for a while.
    with drivers_lost(chance, 0.15):
        cuts = sorted(chance.sample(range(1, 160), 2))
        for begin, end in zip([0, *cuts], [*cuts, 160], strict=True):
            # Either input may be ahead of the other.
            shift = chance.randrange(-20, 20) if end < 160 else 0
            bench.push(left[begin:end], "lefts")
            done = len(bench.events("rights"))
            bench.push(right[done : 160 if end == 160 else max(done, end + shift)], "rights")
            max_events = 20 if end == 160 else chance.choice([37, 90, 1000])
            bench.run(stream, flush=end == 160, max_events_per_cycle=max_events)

    assert pairs(bench) == oracle(left, right, how, before, after)
    assert bench.letters("lefts") == bench.letters("rights") == []
    assert bench.ask("SELECT count(*) FROM penstock.state_runs") == 0


def test_cycles_with_several_tasks_find_the_same_pairs(bench: Bench) -> None:
    chance = random.Random(1)
    left, right = events(chance, 12_000, "l"), events(chance, 12_000, "r")
    for inputs in (left, right):
        for _, event in inputs:
            event["k"] = event["k"] and f"{event['k']}{chance.randrange(100)}"
    for queue, inputs in (("lefts", left), ("rights", right)):
        bench.queue(queue, partitions=4)
        bench.push(inputs, queue)
    bench.run(joined("left", 3, 3, allowed_lateness_seconds=30))

    assert bench.ask("SELECT max(planned) FROM penstock.cycles") > SMALL_EVENTS, "a cycle has several tasks"
    assert pairs(bench) == oracle(left, right, "left", 3, 3)


def test_lateness_depends_only_on_the_order_within_a_partition(bench: Bench) -> None:
    for queue in ("lefts", "rights"):
        bench.queue(queue, partitions=1)
    left = [("x", {"k": "a", "n": 0, "id": f"l{at}", "ts": T0 + at}) for at in (0, 100, 92, 89)]
    right = [("x", {"k": "a", "n": 0, "id": f"r{at}", "ts": T0 + at}) for at in (1, 95)]
    bench.push(left, "lefts")
    bench.push(right, "rights")
    bench.run(joined("inner", 5, 5, allowed_lateness_seconds=10), max_events_per_cycle=2)

    assert [(letter.stage, letter.offset) for letter in bench.letters("lefts")] == [("join", 3)]
    assert pairs(bench) == Counter([("l0", "r1"), ("l100", "r95"), ("l92", "r95")])
    assert bench.ledger("late") == 1


@pytest.mark.parametrize("late", ["dead_letter", "drop"])
def test_a_late_event_is_dropped_or_joined_with_the_stored_rows_after_a_redrive(bench: Bench, late: str) -> None:
    for queue in ("lefts", "rights"):
        bench.queue(queue, partitions=1)
    # The last two left events are late. The match of the first is still stored, that of the second is not.
    left = [("x", {"k": "a", "n": 0, "id": f"l{at}", "ts": T0 + at}) for at in (0, 100, 92, 89, 2)]
    right = [("x", {"k": "a", "n": 0, "id": f"r{at}", "ts": T0 + at}) for at in (1, 93)]
    bench.push(left, "lefts")
    bench.push(right, "rights")
    stream, in_time = joined("inner", 5, 5, allowed_lateness_seconds=10, late=late), [("l0", "r1"), ("l92", "r93")]
    query = bench.run(stream, flush=False, max_events_per_cycle=2)

    assert query.status.late == bench.ledger("late") == 2
    assert pairs(bench) == Counter(in_time)
    if late == "drop":
        assert bench.letters("lefts") == []
        return
    assert [letter.data["id"] for letter in bench.letters("lefts")] == ["l89", "l2"]
    assert bench.redrive("lefts") == 2
    bench.run(stream)
    assert pairs(bench) == Counter([*in_time, ("l89", "r93")])
    assert bench.letters("lefts") == []


def test_an_unmatched_event_is_emitted_when_the_watermarks_of_both_inputs_pass_it(bench: Bench) -> None:
    for queue in ("lefts", "rights"):
        bench.queue(queue, partitions=1)

    def push(queue: str, *times: int) -> None:
        bench.push([("x", {"k": "a", "n": 0, "id": f"{queue[0]}{at}", "ts": T0 + at}) for at in times], queue)

    push("lefts", *[0] * 17)
    push("rights", -100)
    with bench.running(joined("left", 5, 5, allowed_lateness_seconds=0), max_events_per_cycle=3):
        push("lefts", 50)
        eventually(lambda: bench.ledger("events_in") == 19, "all events are read")
        assert bench.events("pairs") == [], "the right input may still have a match"
        push("rights", 6)
        eventually(lambda: len(bench.events("pairs")) == 17, "all unmatched events are emitted, over several cycles")
    assert pairs(bench) == Counter({("l0", None): 17})
    assert bench.ask("SELECT max(events_out) FROM penstock.cycles") == 3


def test_the_wall_clock_expires_rows_when_all_partitions_are_idle(bench: Bench) -> None:
    for queue in ("lefts", "rights"):
        bench.queue(queue, partitions=2)
    bench.push([("x", {"k": "a", "n": 0, "id": "l", "ts": T0})], "lefts")
    bench.push([("x", {"k": "b", "n": 0, "id": "r", "ts": T0})], "rights")
    with bench.running(joined("left", 5, 5, idle_flush_seconds=0.2)):
        eventually(lambda: bench.events("pairs"), "the event is emitted without a match")
    assert pairs(bench) == Counter([("l", None)])


def test_whole_events_are_joined_with_the_results_of_python_functions(bench: Bench) -> None:
    for queue in ("lefts", "rights"):
        bench.queue(queue, partitions=2)
    bench.push([("x", {"k": 1, "ts": T0, "price": 1.10, "more": {"deep": [1, None]}})], "lefts")
    bench.push([("y", {"id": "1", "ts": T0 + 1, "n": 5}), ("y", {"id": "2", "ts": T0 + 1, "n": 6})], "rights")
    right = (
        Stream.from_("rights").filter(lambda event: event["n"] < 6).map(lambda event: {**event, "m": event["n"] + 1})
    )
    bench.run(Stream.from_("lefts").join(right, on={"k": "id"}, within="10 seconds", **RULES).to("pairs"))

    (pair,) = bench.events("pairs")
    assert pair.key == "x"
    assert pair.data == {
        "left": {"k": 1, "ts": T0, "price": 1.10, "more": {"deep": [1, None]}},
        "right": {"id": "1", "ts": T0 + 1, "n": 5, "m": 6},
    }


def test_a_join_in_sql_filters_computes_and_chooses_the_key(bench: Bench) -> None:
    for queue in ("orders", "shipments"):
        bench.queue(queue, partitions=2)
    bench.push([("o", {"id": i, "total": i * 1.5, "ts": T0 + i}) for i in range(4)])
    bench.push([("s", {"order_id": i, "by": f"c{i}", "ts": T0 + i + 2}) for i in (1, 2, 9)], "shipments")
    statement = Stream.sql(
        "INSERT INTO sent SELECT o.id, o.total * 2 AS twice, s.by, s.ts - o.ts AS took FROM orders o "
        "LEFT JOIN shipments s ON s.order_id = o.id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '1 minute' "
        "WHERE o.id > 0 DISTRIBUTE BY id"
    )
    bench.run(statement)

    sent = sorted(
        (event.key, event.data["twice"], event.data["by"], event.data["took"]) for event in bench.events("sent")
    )
    assert sent == [("1", 3, "c1", 2), ("2", 6, "c2", 2), ("3", 9, None, None)]
    assert len(statement.preview(settings=bench.settings)) == 2


#: Where a member is read, the steps of the left input, and the step after the join.
_MEMBER_READERS: dict[str, tuple[Any, str]] = {
    "in a filter": (lambda left: left.filter("o.n > 0"), "left.id AS l, right.o.id AS r"),
    "after the join": (lambda left: left, "left.o.n AS n, left.id AS l, right.o.id AS r"),
    "in both": (lambda left: left.filter("o.deep.m > 0"), "left.o.n AS n, left.id AS l, right.o.id AS r"),
    "after a function": (
        lambda left: left.map(lambda event: {**event, "id": event["id"].upper()}),
        "left.o.n AS n, lower(left.id) AS l, right.o.id AS r",
    ),
    "in a test for null": (lambda left: left.filter("o.n > 0"), "left.id AS l, right.o.id AS r, left IS NULL AS x"),
}


@pytest.mark.parametrize("where", _MEMBER_READERS)
def test_only_members_that_a_join_reads_have_to_be_of_one_type(bench: Bench, where: str) -> None:
    for queue in ("lefts", "rights"):
        bench.queue(queue, partitions=1)
    odd: list[Any] = [[1, "a"], {"x": 1}, "text", None, [[1], {"y": 2}]]

    def inputs(name: str) -> list[Any]:
        return [
            (
                "x",
                {
                    "id": f"{name}{i}",
                    "ts": T0,
                    "o": {"id": f"{name}{i}", "k": i, "n": 1, "deep": {"m": 1, "t": t}, "t": t},
                },
            )
            for i, t in enumerate(odd)
        ]

    wrong = ("x", {"id": "wrong", "ts": T0, "o": {"id": "wrong", "k": 0, "n": {"no": "number"}, "deep": {"m": 1}}})
    bench.push([*inputs("l"), wrong], "lefts")
    bench.push(inputs("r"), "rights")
    steps, result = _MEMBER_READERS[where]
    made = (
        steps(Stream.from_("lefts")).join(Stream.from_("rights"), on="o.k", within=5, **RULES).map(result).to("pairs")
    )
    query = bench.run(made)

    assert pairs(bench) == Counter((f"l{i}", f"r{i}") for i in range(5))
    assert [letter.data["id"] for letter in bench.letters("lefts")] == ["wrong"]
    assert bench.letters("rights") == []
    assert query.status.failed_cycles == 0


@pytest.mark.parametrize("where", ["in an input", "after the join"])
def test_an_inner_join_with_an_empty_reference_table_keeps_the_join_state(bench: Bench, where: str) -> None:
    """Spark skips the jobs of inputs that cannot contribute a row. Their events are committed all the same."""
    for queue in ("lefts", "rights"):
        bench.queue(queue, partitions=2)
    with psycopg.connect(bench.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE names (k text, name text)")
        named: dict[str, Any] = {"on": "k", "how": "inner"}
        left, right = Stream.from_("lefts"), Stream.from_("rights")
        in_input = where == "in an input"
        pairs = (left.enrich("names", **named) if in_input else left).join(right, on="k", within=60, **RULES)
        mapped = pairs.map("left.k AS k, left.id AS l, right.id AS r")
        stream = (mapped if in_input else mapped.enrich("names", **named)).to("pairs")

        def push(queue: str, *ids: str) -> None:
            bench.push([(name, {"k": "a", "id": name, "ts": T0}) for name in ids], queue)

        push("lefts", "l1", "l2", "l3")
        push("rights", "r1")
        query = bench.run(stream, flush=False)
        assert (query.status.events_in, query.status.failed_cycles, bench.emitted("pairs")) == (4, 0, [])
        conn.execute("INSERT INTO names VALUES ('a', 'Ada')")
        push("lefts", "l4")
        push("rights", "r2")
        bench.run(stream, flush=False)

    emitted = {(event["l"], event["r"]) for event in bench.emitted("pairs")}
    expected = {("l4", "r1"), ("l4", "r2")}
    assert emitted == (expected if in_input else expected | {(f"l{n}", "r2") for n in (1, 2, 3)})
    assert bench.letters("lefts") == bench.letters("rights") == []
