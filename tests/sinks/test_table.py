"""A PostgreSQL table as a sink."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import psycopg
import pytest
from psycopg import sql

from penstock import Stream
from penstock.core.errors import UnknownField
from penstock.core.settings import Settings
from penstock.log.log import Log
from penstock.sinks import Backoff, Sinks, Table
from penstock.sinks.delivery.stream_sinks import run_sinks_in_background
from tests.conditions import eventually_async
from tests.log.logs import ask, lag, letters, push

QUICK = Backoff(first=0.01, longest=0.05)


@pytest.fixture
def table(sinks_url: str) -> str:
    name = f"windows_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(sinks_url, autocommit=True) as conn:
        conn.execute(
            f"CREATE TABLE {name} (customer text, at timestamptz, total numeric, writes int DEFAULT 7,"
            " PRIMARY KEY (customer, at))"
        )
    return name


async def deliver(log: Log, queue: str, sink: Table, **options: Any) -> None:
    await Sinks(log=log).add(queue, sink, backoff=QUICK, **options).run(idle_seconds=0.2)


async def deliver_after_fix(log: Log, queue: str, sink: Table, url: str, error: str, fix: str) -> None:
    """Run a sink until it reports the error, execute the fix, and wait until all events are written."""
    sinks = Sinks(log=log).add(queue, sink, backoff=QUICK, attempts=1)
    running = asyncio.create_task(sinks.run())
    counters = sinks.workers[0].counters

    async def is_reported() -> object:
        return counters.error is not None and error in counters.error

    await eventually_async(is_reported)
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(fix.encode())

    async def is_written() -> object:
        return counters.written and await lag(log, queue, sink.name) == 0

    await eventually_async(is_written)
    sinks.stop()
    await running
    assert await letters(log, queue) == []


def rows(url: str, table: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as conn:
        found = conn.execute(f"SELECT customer, total FROM {table} ORDER BY at, customer".encode()).fetchall()  # noqa: S608
    return [(customer, str(total)) for customer, total in found]


async def test_the_last_event_of_a_key_replaces_the_row(log: Log, queue: str, table: str, sinks_url: str) -> None:
    at = "2026-01-31T12:00:00Z"
    await push(log, [{"customer": "ada", "at": at, "total": n, "other": 1} for n in (1, 2)], queue=queue, key="ada")
    await push(log, [{"customer": "bob", "at": at, "total": 5.5}], queue=queue, key="bob")
    await deliver(log, queue, Table(table))
    await push(log, [{"customer": "ada", "at": at, "total": 3}], queue=queue, key="ada")
    await deliver(log, queue, Table(table))

    assert rows(sinks_url, table) == [("ada", "3"), ("bob", "5.5")]


async def test_columns_are_mapped_from_key_time_and_nested_fields(
    log: Log, queue: str, table: str, sinks_url: str
) -> None:
    await push(log, [{"sum": {"total": 4}}], queue=queue, key="ada")
    sink = Table(table, columns={"customer": "$key", "at": "$time", "total": "sum.total"})
    await deliver(log, queue, sink)
    assert rows(sinks_url, table) == [("ada", "4")]
    assert ask(sinks_url, f"SELECT writes FROM {table}") == 7  # noqa: S608


async def test_a_path_that_no_event_has_is_warned_of_once(
    log: Log, queue: str, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    await push(log, [{"total": n} for n in range(3)], queue=queue, key="ada")
    sink = Table(table, columns={"customer": "$key", "at": "$time", "total": "totl"})
    await deliver(log, queue, sink, batch=1)
    warnings = [record.getMessage() for record in caplog.records if "none of the first events" in record.getMessage()]
    assert warnings == [
        f"table:{table}: none of the first events has the field 'totl' for column 'total'; did you mean 'total'?"
    ]


def test_a_stream_with_a_misspelt_path_is_refused_before_it_starts(sinks_url: str) -> None:
    windows = Stream.from_("orders").window_tumbling(seconds=5).aggregate({"total": "sum(amount)"})
    settings = Settings(database_url=sinks_url)
    for stream, path, meant in (
        (windows, "totl", "'total'"),
        (windows, "window_strat", "'window_start'"),
        (windows.select({"paid": "total * 2"}), "payd.x", "'paid'"),
    ):
        with pytest.raises(UnknownField, match=f"no field .* for column 'total'; did you mean {meant}") as refused:
            run_sinks_in_background(stream.to("totals", Table("t", columns={"total": path})), settings)
        assert refused.value.suggestions[0] == meant.strip("'")
        with pytest.raises(UnknownField):
            Sinks(sinks_url).follow(stream.to("totals", Table("t", columns={"total": path})))
    sinks = Sinks(sinks_url).follow(windows.to("totals", Table("t", columns={"total": "total", "n": "revision"})))
    assert len(sinks.workers) == 1


async def test_an_event_that_does_not_fit_the_table_is_a_dead_letter(
    log: Log, queue: str, table: str, sinks_url: str
) -> None:
    at = "2026-01-31T12:00:00Z"
    good = [{"customer": f"c{n}", "at": at, "total": n} for n in range(4)]
    await push(
        log, [good[0], {**good[1], "total": "many"}, good[2], [1], {"customer": None}, good[3]], queue=queue, key="a"
    )
    await deliver(log, queue, Table(table))

    assert rows(sinks_url, table) == [("c0", "0"), ("c2", "2"), ("c3", "3")]
    assert len(await letters(log, queue)) == 3


@pytest.mark.slow
async def test_rows_are_inserted_once_if_the_sink_is_cancelled(log: Log, queue: str, sinks_url: str) -> None:
    name = f"sums_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(sinks_url, autocommit=True) as conn:
        conn.execute(f"CREATE TABLE {name} (n int)")
    await push(log, [{"n": n} for n in range(300)], queue=queue, key="a")
    for _ in range(6):
        sinks = Sinks(log=log).add(queue, Table(name), batch=10, lease_seconds=0.3)
        task = asyncio.create_task(sinks.workers[0].run(idle_seconds=0.2))

        async def some(sinks: Sinks = sinks, task: Any = task) -> object:
            return sinks.workers[0].counters.batches >= 2 or task.done()

        await eventually_async(some)
        task.cancel()
        await asyncio.wait([task])
    await Sinks(log=log).add(queue, Table(name)).run(idle_seconds=0.5)

    once = f"SELECT array_agg(n ORDER BY n) = array_agg(DISTINCT n) AND count(*) = 300 FROM {name}"  # noqa: S608
    assert ask(sinks_url, once)


async def test_a_missing_table_is_retried_until_it_exists(log: Log, queue: str, sinks_url: str) -> None:
    name = f"later_{uuid.uuid4().hex[:8]}"
    await push(log, [{"n": 1}], queue=queue, key="a")
    fix = f"CREATE TABLE {name} (n int PRIMARY KEY)"
    await deliver_after_fix(log, queue, Table(name), sinks_url, "there is no table", fix)


async def test_hostile_column_names_are_quoted(log: Log, queue: str, sinks_url: str) -> None:
    hostile = ['a"; DROP TABLE x; --', "50%", "%s", "{key}", "select", "a'b", "$1"]
    columns = sql.SQL(", ").join(sql.SQL("{} text").format(sql.Identifier(name)) for name in hostile)
    name = f"Weird % {uuid.uuid4().hex[:8]}"
    with psycopg.connect(sinks_url, autocommit=True) as conn:
        conn.execute(
            sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY ({}))").format(
                sql.Identifier(name), columns, sql.Identifier(hostile[0])
            )
        )
    await push(log, [{each: f"{each} {n}" for each in hostile} for n in range(2)], queue=queue, key="a")
    await deliver(log, queue, Table(f'"{name}"'))
    with psycopg.connect(sinks_url) as conn:
        found = conn.execute(sql.SQL("SELECT * FROM {} ORDER BY 1").format(sql.Identifier(name))).fetchall()
    assert found == [tuple(f"{each} {n}" for each in hostile) for n in range(2)]


def created(url: str, columns: str, *more: str) -> str:
    name = f"rows_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(f"CREATE TABLE {name} ({columns})")
        for statement in more:
            conn.execute(statement.replace("rows_of_it", name).encode())
    return name


def found(url: str, name: str, what: str) -> list[Any]:
    with psycopg.connect(url) as conn:
        return conn.execute(f"SELECT {what} FROM {name} ORDER BY n".encode()).fetchall()  # noqa: S608


async def test_a_value_too_long_for_an_index_is_a_dead_letter(log: Log, queue: str, sinks_url: str) -> None:
    name = created(sinks_url, "n int, word text UNIQUE")
    words = ["short", "".join(uuid.uuid4().hex for _ in range(300)), "short too"]
    await push(log, [{"n": n, "word": word} for n, word in enumerate(words)], queue=queue, key="a")
    await deliver(log, queue, Table(name))

    assert found(sinks_url, name, "word") == [("short",), ("short too",)]
    (letter,) = await letters(log, queue)
    assert "index row" in letter.error


REFUSING = (
    """CREATE FUNCTION rows_of_it_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.n = 2 AND EXISTS (SELECT FROM rows_of_it_while) THEN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END IF;
    RETURN NEW; END $$""",
    "CREATE TABLE rows_of_it_while AS SELECT 1 AS one",
    "CREATE TRIGGER refuse BEFORE INSERT ON rows_of_it FOR EACH ROW EXECUTE FUNCTION rows_of_it_refuse()",
)


async def test_an_event_whose_statement_is_cancelled_is_a_dead_letter(log: Log, queue: str, sinks_url: str) -> None:
    name = created(sinks_url, "n int", *(each.replace("{code}", "57014") for each in REFUSING))
    await push(log, [{"n": n} for n in range(5)], queue=queue, key="a")
    await deliver(log, queue, Table(name), attempts=2)

    assert found(sinks_url, name, "n") == [(0,), (1,), (3,), (4,)]
    assert [letter.data for letter in await letters(log, queue)] == [{"n": 2}]


@pytest.mark.parametrize("code", ["53100", "25006"])
async def test_transient_database_errors_are_retried(log: Log, queue: str, sinks_url: str, code: str) -> None:
    name = created(sinks_url, "n int", *(each.replace("{code}", code) for each in REFUSING))
    await push(log, [{"n": n} for n in range(5)], queue=queue, key="a")
    fix = f"DELETE FROM {name}_while"  # noqa: S608
    await deliver_after_fix(log, queue, Table(name), sinks_url, "the database is not available: no", fix)
    assert found(sinks_url, name, "n") == [(n,) for n in range(5)]


async def test_missing_fields_get_the_default_of_the_column(log: Log, queue: str, sinks_url: str) -> None:
    name = created(
        sinks_url, "id serial PRIMARY KEY, n int, made timestamptz NOT NULL DEFAULT now(), note text DEFAULT 'none'"
    )
    await push(log, [{"n": 1}, {"n": 2, "note": "x"}, {"n": 3, "note": None}, {"n": 4}], queue=queue, key="a")
    await deliver(log, queue, Table(name))

    assert await letters(log, queue) == []
    assert found(sinks_url, name, "n, note, made IS NOT NULL, id IS NOT NULL") == [
        (1, "none", True, True),
        (2, "x", True, True),
        (3, None, True, True),
        (4, "none", True, True),
    ]
    await deliver(log, queue, Table(name, columns={"n": "n"}), group="again")
    assert found(sinks_url, name, "count(*) OVER (), n")[-1] == (8, 4)


@pytest.mark.parametrize("batch", [1, 100])
async def test_a_replaced_row_keeps_columns_with_defaults(log: Log, queue: str, sinks_url: str, batch: int) -> None:
    name = created(sinks_url, "k text PRIMARY KEY, n int, seen int DEFAULT 7, other int")
    events = [{"k": "a", "n": 1, "seen": 5, "other": 1}, {"k": "b", "n": 2}, {"k": "a", "n": 3}, {"k": "b", "n": 4}]
    await push(log, events, queue=queue, key="a")
    await deliver(log, queue, Table(name), batch=batch)

    assert found(sinks_url, name, "k, n, seen, other") == [("a", 3, 5, None), ("b", 4, 7, None)]


async def test_generated_identity_columns_are_not_written(log: Log, queue: str, sinks_url: str) -> None:
    name = created(sinks_url, "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int, twice int")
    await push(log, [{"id": 99, "n": n} for n in range(3)], queue=queue, key="a")
    await deliver(log, queue, Table(name, columns={"n": "n", "twice": "no.such"}))
    await push(log, [{"id": 99, "n": 3}, {"nothing": "known"}], queue=queue, key="a")
    await deliver(log, queue, Table(name), group="again")

    assert sorted(found(sinks_url, name, "n"), key=str) == [(0,), (0,), (1,), (1,), (2,), (2,), (3,), (None,)]
    assert await letters(log, queue) == []


async def test_a_key_without_a_unique_index_is_reported_and_retried(log: Log, queue: str, sinks_url: str) -> None:
    name = created(sinks_url, "n int")
    await push(log, [{"n": 1}], queue=queue, key="a")
    error, fix = "cannot be written as configured: there is no unique", f"CREATE UNIQUE INDEX ON {name} (n)"
    await deliver_after_fix(log, queue, Table(name, key="n"), sinks_url, error, fix)


async def test_a_table_in_another_database_is_written_when_it_is_reachable(
    log: Log, queue: str, sinks_url: str
) -> None:
    name = created(sinks_url, "n int")
    await push(log, [{"n": 1}], queue=queue, key="a")
    away = Sinks(log=log).add(queue, Table(name, url="postgresql://127.0.0.1:1/none"), backoff=QUICK)
    running = asyncio.create_task(away.run())

    async def is_tried() -> object:
        return away.workers[0].counters.retries > 1

    await eventually_async(is_tried)
    away.stop()
    await running
    await deliver(log, queue, Table(name, url=sinks_url))
    assert found(sinks_url, name, "n") == [(1,)]
