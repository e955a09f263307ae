"""Python functions in streaming SQL and in materialized views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from penstock.core.errors import Conflict, InvalidRequest
from penstock.engine.stream import Stream
from tests.engine.pipelines import T0, Bench
from tests.engine.views.statements import comparable, read_rows

WORDS: list[Any] = ["", "ccc", "abc", "Cc", None, "a", "cabbage", "ca ca"]
EVENTS: list[dict[str, Any]] = [
    {"id": number, "word": WORDS[number % len(WORDS)], "at": T0 + number} for number in range(40)
]


def letters(text: str | None, letter: str = "c") -> int | None:
    return None if text is None else text.count(letter)


def shout(text: str | None) -> str | None:
    return None if text is None else text.upper()


def half(number: int) -> Decimal:
    return Decimal(number) / 2


def an_hour_later(time: datetime) -> datetime:
    assert time.tzinfo is UTC
    return time + timedelta(hours=1)


def first_letters(text: str | None) -> list[str]:
    return sorted(set(text or ""))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "letters": letters,
    "shout": shout,
    "half": half,
    "first_letters": first_letters,
    "an_hour_later": an_hour_later,
}


@pytest.fixture
def words(bench: Bench) -> Bench:
    bench.queue("words")
    bench.push([(str(event["id"] % 3), event) for event in EVENTS], "words")
    return bench


def view(select: str) -> Any:
    return Stream.sql(f"CREATE MATERIALIZED VIEW v AS {select}", functions=FUNCTIONS)


def test_a_stream_calls_functions_in_the_select_list_and_in_where(words: Bench) -> None:
    made: Any = Stream.sql(
        "INSERT INTO out SELECT id, Letters(word, 'c') AS n, shout(concat(word, '!')) AS loud, half(id) AS middle "
        "FROM words WHERE letters(word) > 0",
        functions=FUNCTIONS,
    )
    words.run(made, "out")
    expected = {
        (e["id"], e["word"].count("c"), f"{e['word']}!".upper(), Decimal(e["id"]) / 2)
        for e in EVENTS
        if e["word"] and "c" in e["word"]
    }
    assert {(e["id"], e["n"], e["loud"], Decimal(e["middle"])) for e in words.emitted("out")} == expected


def test_a_window_groups_and_adds_up_by_functions(words: Bench) -> None:
    made: Any = Stream.sql(
        "CREATE QUERY q AS SELECT shout(word) AS loud, window(at, '1 hour') AS w, sum(letters(word)) AS n, "
        "count(*) FILTER (WHERE letters(word, 'a') > 0) AS with_a FROM words GROUP BY shout(word), w",
        functions=FUNCTIONS,
    )
    words.run(made)
    expected: dict[Any, list[int]] = {}
    for event in EVENTS:
        sums = expected.setdefault(shout(event["word"]), [0, 0])
        sums[0] += letters(event["word"]) or 0
        sums[1] += (letters(event["word"], "a") or 0) > 0
    shown = {row["key"]: [int(row["n"] or 0), row["with_a"]] for row in words.rows()}
    assert shown == {None if key is None else key or '""': sums for key, sums in expected.items()}


def test_a_view_calls_functions_wherever_an_expression_stands(words: Bench) -> None:
    made = view(
        "SELECT letters(a.word) AS n, count(*) AS pairs, sum(letters(b.word, 'a')) AS letters_a, "
        "count(*) FILTER (WHERE letters(b.word, 'b') > 0) AS with_b, max(shout(b.word)) AS last "
        "FROM words a JOIN words b ON letters(a.word) = letters(b.word) AND half(a.id) < b.id "
        "WHERE letters(a.word) < 3 GROUP BY letters(a.word) HAVING half(count(*)) > 2"
    )
    words.run(made, "v", max_events_per_cycle=11)
    groups: dict[int | None, list[dict[str, Any]]] = {}
    for a in EVENTS:
        n = letters(a["word"])
        for b in EVENTS if n is not None and n < 3 else []:
            if n == letters(b["word"]) and a["id"] / 2 < b["id"]:
                groups.setdefault(n, []).append(b)
    expected = [
        (
            n,
            len(rows),
            sum(b["word"].count("a") for b in rows),
            sum("b" in b["word"] for b in rows),
            max(b["word"].upper() for b in rows),
        )
        for n, rows in groups.items()
        if len(rows) > 4
    ]
    assert expected
    assert read_rows(words.url, "v") == comparable(expected)


def test_functions_get_and_return_times_in_utc(words: Bench) -> None:
    words.run(view("SELECT id, an_hour_later(timestamp_seconds(at)) AS later FROM words"), "v")
    times = {e["id"]: datetime.fromtimestamp(e["at"] + 3600, UTC) for e in EVENTS}
    assert read_rows(words.url, "v") == comparable(times.items())


def test_a_view_explodes_and_orders_by_the_results_of_functions(words: Bench) -> None:
    made = view(
        "SELECT letter, n FROM (SELECT letter, count(*) AS n FROM words "
        "LATERAL VIEW explode(first_letters(word)) t AS letter GROUP BY letter) ORDER BY half(n) DESC, letter LIMIT 2"
    )
    words.run(made, "v", max_events_per_cycle=7)
    counts = Counter(letter for event in EVENTS for letter in set(event["word"] or ""))
    assert read_rows(words.url, "v") == comparable(sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:2])


def test_an_event_for_which_a_function_raises_is_a_dead_letter(words: Bench) -> None:
    def parity(number: Decimal) -> int:
        return {0: 0, 1: 1}[int(number % 2 if number != 7 else number)]

    made: Any = Stream.sql(
        "CREATE MATERIALIZED VIEW v AS SELECT parity(id) AS n, count(*) AS words FROM words GROUP BY 1",
        functions={"parity": parity},
    )
    words.run(made, "v")
    (letter,) = words.letters("words")
    assert (letter.data["id"], letter.stage) == (7, "cycle")
    assert "KeyError" in letter.error
    expected = Counter(event["id"] % 2 for event in EVENTS if event["id"] != 7)
    assert {int(float(n)): int(float(count)) for n, count in read_rows(words.url, "v")} == expected


def test_a_function_with_other_code_is_another_query(words: Bench) -> None:
    def twice(number: int) -> int:
        return number * 2

    statement = "INSERT INTO out SELECT f(id) AS n FROM words"
    words.run(Stream.sql(statement, functions={"f": twice}), "out")

    def thrice(number: int) -> int:
        return number * 3

    with pytest.raises(Conflict, match="function f"):
        words.run(Stream.sql(statement, functions={"f": thrice}), "out")


def test_a_function_of_spark_is_not_replaced(words: Bench) -> None:
    made: Any = Stream.sql("INSERT INTO out SELECT luhn_check(word) AS n FROM words", functions={"luhn_check": shout})
    with pytest.raises(InvalidRequest, match="Spark has a function luhn_check"):
        words.run(made, "out")


def test_a_preview_calls_functions(words: Bench) -> None:
    made = view("SELECT sum(letters(word)) AS n FROM words")
    assert made.preview(settings=words.settings) == [{"n": sum(letters(e["word"]) or 0 for e in EVENTS)}]
