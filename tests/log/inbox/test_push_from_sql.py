"""Events that are pushed with SQL arrive when the transaction commits, and are checked like those of a client."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from psycopg.errors import InvalidParameterValue
from psycopg.types.json import Jsonb

from penstock.log.log import Log
from tests.conditions import eventually_async
from tests.log.logs import QUEUE, by_key, data, drain, lag, pop
from tests.log.logs import push as push_natively

FULL = "PS002"


def push(conn: Connection[Any], value: Any, **options: Any) -> Any:
    named = "".join(f", {name} => %({name})s" for name in options)
    statement = f"SELECT penstock.push(%(queue)s, %(data)s{named})"
    row = conn.execute(statement.encode(), {"queue": QUEUE, "data": Jsonb(value), **options}).fetchone()
    assert row is not None
    return row[0]


async def test_an_event_has_what_was_pushed(log: Log, sql: Connection[Any]) -> None:
    await log.configure(QUEUE)
    time = datetime(2026, 1, 31, 12, tzinfo=UTC)
    value = {"text": 'a "quoted" line\nand ünï©ødé', "numbers": [1, 2.5, 10**30], "nothing": None}
    assert push(sql, value, key="ada", event_id="id-1", event_time=time, headers=Jsonb({"from": "sql"})) == 1

    async def is_there() -> bool:
        return await lag(log) == 1 and bool(sql.execute("SELECT count(*) FROM penstock.inbox").fetchone() == (0,))

    await log.subscribe(QUEUE, "workers")
    await eventually_async(is_there)
    (event,) = await drain(log)
    assert (event.data, event.key, event.id, event.time, event.headers) == (
        value,
        "ada",
        "id-1",
        time,
        {"from": "sql"},
    )


async def test_events_exist_when_the_transaction_commits(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE)
    with sql.transaction():
        push(sql, "committed", key="a")
        await still_log.inbox.move()
        assert await drain(still_log) == []
        with sql.transaction(force_rollback=True):
            push(sql, "rolled back to a savepoint", key="b")
        with sql.transaction():
            push(sql, "in a savepoint", key="a")
    with sql.transaction(force_rollback=True):
        push(sql, "rolled back", key="a")
    await still_log.inbox.move()
    assert by_key(await drain(still_log)) == {"a": ["committed", "in a savepoint"]}


async def test_many_events_are_one_row(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE, partitioning="hash", partitions=4)
    values = [{"n": n} for n in range(2500)]
    keys = [None if n % 5 == 4 else f"key {n % 5}" for n in range(2500)]
    pushed = sql.execute(
        "SELECT penstock.push_many(%s, %s, keys => %s, event_ids => %s)",
        (QUEUE, [Jsonb(value) for value in values], keys, [None, *(f"id {n}" for n in range(1, 2500))]),
    ).fetchone()
    assert pushed == (2500,)
    assert sql.execute("SELECT count(*) FROM penstock.inbox").fetchone() == (1,)
    assert await still_log.inbox.move() == 1
    events = await drain(still_log)
    assert sorted((event.data["n"], event.key) for event in events) == [(n, keys[n]) for n in range(2500)]
    for key in filter(None, dict.fromkeys(keys)):
        assert by_key(events)[key] == [value for value, its in zip(values, keys, strict=True) if its == key]


async def test_an_empty_push_stores_nothing(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE)
    assert sql.execute("SELECT penstock.push_many(%s, '{}'::jsonb[])", (QUEUE,)).fetchone() == (0,)
    assert not await still_log.inbox.has_rows()


async def test_duplicate_ids_are_stored_once(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE, {"dedup_window_seconds": 60})
    await push_natively(still_log, [0], key="ada", ids=["id-0"])
    for n in (0, 1, 1, 2):
        push(sql, n, key="ada", event_id=f"id-{n}")
    await still_log.inbox.move()
    push(sql, 2, key="ada", event_id="id-2")
    await still_log.inbox.move()
    assert data(await drain(still_log)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": ""}, "event 0: key: must not be empty"),
        ({"key": "ü" * 513}, "event 0: key: may have up to 1024 bytes; this one has 1026"),
        ({"event_id": ""}, "event 0: event_id: must not be empty"),
        ({"event_id": "x" * 257}, "event 0: event_id: may have 256 bytes"),
        ({"event_time": "infinity"}, "event 0: event_time: is not in the years 1 to 9999"),
        ({"event_time": "10000-01-01Z"}, "event 0: event_time: is not in the years 1 to 9999"),
        ({"headers": Jsonb(["a"])}, "event 0: headers: must be an object of text"),
        ({"headers": Jsonb({"a": 1})}, "event 0: headers: must be an object of text"),
        ({"headers": Jsonb({"a": "x" * 70_000})}, "event 0: headers: take more than 64 KiB"),
    ],
)
async def test_invalid_events_are_refused(
    still_log: Log, sql: Connection[Any], options: dict[str, Any], message: str
) -> None:
    await still_log.configure(QUEUE)
    with pytest.raises(InvalidParameterValue, match=message):
        push(sql, 1, **options)
    assert not await still_log.inbox.has_rows()


@pytest.mark.parametrize("options", [{"key": "k" * 1024}, {"event_id": "i" * 256}, {"headers": Jsonb({})}])
async def test_the_largest_values_are_accepted(still_log: Log, sql: Connection[Any], options: dict[str, Any]) -> None:
    await still_log.configure(QUEUE)
    push(sql, 1, **options)
    await still_log.inbox.move()
    assert data(await drain(still_log)) == [1]


async def test_an_error_names_the_event_of_a_batch(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE, {"max_event_bytes": 100})
    values = [Jsonb("x" * 60), Jsonb("y" * 60), Jsonb("z" * 99)]
    with pytest.raises(InvalidParameterValue, match="event 2: data: is 101 bytes of JSON and the limit is 100"):
        sql.execute("SELECT penstock.push_many(%s, %s)", (QUEUE, values))
    with pytest.raises(InvalidParameterValue, match="event 1: key: must not be empty"):
        sql.execute("SELECT penstock.push_many(%s, %s, %s)", (QUEUE, values[:2], ["a", ""]))
    with pytest.raises(InvalidParameterValue, match="event 1: data: is NULL"):
        sql.execute("SELECT penstock.push_many(%s, ARRAY['1', NULL]::jsonb[])", (QUEUE,))
    with pytest.raises(psycopg.errors.ArraySubscriptError, match="there are 2 events, 1 keys"):
        sql.execute("SELECT penstock.push_many(%s, %s, %s)", (QUEUE, values[:2], ["a"]))
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="up to 10000 events"):
        sql.execute("SELECT penstock.push_many(%s, array_fill('1'::jsonb, ARRAY[10001]))", (QUEUE,))
    assert sql.execute("SELECT penstock.push_many(%s, %s)", (QUEUE, values[:2])).fetchone() == (2,)


async def test_a_queue_that_does_not_exist_or_is_encrypted_is_refused_by_name(
    still_log: Log, sql: Connection[Any]
) -> None:
    with pytest.raises(psycopg.errors.UndefinedObject, match="there is no queue 'orders'"):
        push(sql, 1)
    with pytest.raises(psycopg.errors.UndefinedObject, match="there is no queue NULL"):
        sql.execute("SELECT penstock.push(NULL, '1')")
    await still_log.configure(QUEUE)
    sql.execute("UPDATE penstock.queues SET encrypted = true")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="queue 'orders' is encrypted"):
        push(sql, 1)


async def test_lag_and_depth_count_the_inbox(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE)
    await still_log.subscribe(QUEUE, "workers")
    await push_natively(still_log, [1, 2], key="a")
    sql.execute("SELECT penstock.push_many(%s, ARRAY['3', '4', '5']::jsonb[])", (QUEUE,))
    assert await lag(still_log) == 5
    assert sql.execute("SELECT lag FROM penstock.lag").fetchone() == (5,)
    assert sql.execute("SELECT events, appended, inbox FROM penstock.depth").fetchone() == (5, 2, 3)
    await still_log.inbox.move()
    assert await lag(still_log) == 5
    assert sql.execute("SELECT events, appended, inbox FROM penstock.depth").fetchone() == (5, 5, 0)


async def test_a_full_queue_refuses_until_it_is_read(log: Log, sql: Connection[Any]) -> None:
    await log.configure(QUEUE, {"max_depth_events": 10})
    await log.subscribe(QUEUE, "workers")
    pushed = 0

    async def is_refused() -> bool:
        nonlocal pushed
        try:
            pushed += push(sql, pushed)
        except psycopg.Error as error:
            if error.sqlstate == FULL and "queue 'orders' is full" in str(error):
                return True
            raise
        return False

    await eventually_async(is_refused)
    assert pushed >= 10

    async def is_accepted() -> bool:
        assert all(await log.ack(await pop(log)))
        return not await is_refused()

    await eventually_async(is_accepted)


async def test_without_a_process_that_moves_it_the_inbox_is_bounded(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE, {"max_depth_events": 5})
    for n in range(5):
        push(sql, n)
    with pytest.raises(psycopg.Error, match="5 events wait in the inbox and 5 are allowed; start a server") as refused:
        push(sql, 5)
    assert refused.value.sqlstate == FULL
    await still_log.inbox.move()
    assert push(sql, 5) == 1


async def test_a_full_queue_that_sheds_counts_what_it_drops(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE, {"max_depth_events": 2, "overflow": "shed"})
    assert [push(sql, n) for n in range(4)] == [1, 1, 0, 0]
    assert sql.execute("SELECT shed FROM penstock.depth").fetchone() == (2,)


async def test_deleting_a_queue_deletes_its_inbox(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE)
    push(sql, 1)
    with sql.transaction():
        push(sql, 2)
        with psycopg.connect(sql.info.dsn, autocommit=True):
            await still_log.delete_queue(QUEUE)
    await still_log.configure(QUEUE)
    await still_log.inbox.move()
    assert await drain(still_log) == []
    assert not await still_log.inbox.has_rows()


async def test_an_event_that_the_queue_no_longer_accepts_becomes_a_dead_letter(
    still_log: Log, sql: Connection[Any]
) -> None:
    await still_log.configure(QUEUE)
    push(sql, "x" * 500)
    push(sql, 1)
    await still_log.configure(QUEUE, {"max_event_bytes": 100})
    await still_log.inbox.move()
    assert data(await drain(still_log)) == [1]
    assert sql.execute("SELECT data FROM penstock.dead_letters").fetchone() == (f'"{"x" * 500}"',)


async def test_a_function_and_a_trigger_can_push(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE)
    sql.execute("CREATE TABLE things (id int)")
    sql.execute("""
        CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM penstock.push('orders', to_jsonb(NEW.id), key => 'things'); RETURN NULL; END $$;
        CREATE TRIGGER tell AFTER INSERT ON things FOR EACH ROW EXECUTE FUNCTION tell();
        DO $$
        BEGIN
            INSERT INTO things SELECT generate_series(1, 3);
            PERFORM penstock.push('orders', '4', 'things');
        END $$;
    """)
    sql.execute("""
        DO $$
        BEGIN
            FOR i IN 5..6 LOOP
                PERFORM penstock.push('orders', to_jsonb(i), 'things');
                COMMIT;
            END LOOP;
        END $$
    """)
    await still_log.inbox.move()
    assert data(await drain(still_log)) == [1, 2, 3, 4, 5, 6]
