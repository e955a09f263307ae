from __future__ import annotations

import pytest
from psycopg import AsyncConnection

from penstock import InvalidRequest, Penstock, TransactionRefused
from penstock.core.clock import Clock
from tests.client.conditions import numbered_events, sequence_numbers


@pytest.fixture(autouse=True)
async def queues(q: Penstock) -> None:
    for name in ("orders", "shipments", "audit"):
        await q.queue(name).create()
    await q.queue("orders").push(numbered_events(3))


async def test_a_chain_acks_and_pushes_together(q: Penstock) -> None:
    events = await q.queue("orders").batch(3).pop()

    result = await (
        q.transaction()
        .ack(events)
        .queue("shipments")
        .partition("berlin")
        .push(numbered_events(2))
        .queue("audit")
        .push_ndjson(b'"one"\n"two"')
        .commit()
    )

    assert result.acked == 3
    assert [(push.accepted, push[0].partition) for push in result.pushes] == [(2, "berlin"), (2, "Default")]
    assert await q.queue("orders").lag() == 0
    assert sequence_numbers(await q.queue("shipments").batch(9).pop()) == [0, 1]


async def test_a_block_commits_at_its_end(q: Penstock) -> None:
    async with q.transaction() as tx:
        tx.ack(await q.queue("orders").batch(3).pop())
        tx.queue("shipments").key("berlin").push({"data": {"seq": 7}})
        assert await q.queue("shipments").pop() == []

    assert tx.result is not None
    assert tx.result.acked == 3
    assert sequence_numbers(await q.queue("shipments").pop()) == [7]


async def test_a_block_that_raises_does_nothing(q: Penstock) -> None:
    tx = q.transaction()
    tx.ack(await q.queue("orders").batch(3).pop())

    async def failing() -> None:
        async with tx:
            tx.queue("shipments").push(numbered_events(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()
    assert tx.result is None
    assert await q.queue("orders").lag() == 3
    assert await q.queue("shipments").pop() == []


async def test_a_lost_lease_refuses_the_whole_transaction(q: Penstock, clock: Clock) -> None:
    events = await q.queue("orders").lease_seconds(10).batch(3).pop()
    clock.advance(11)

    with pytest.raises(TransactionRefused):
        await q.transaction().ack(events).queue("shipments").push(numbered_events(1)).commit()

    assert await q.queue("shipments").pop() == []
    assert await q.queue("orders").lag() == 3


async def test_a_transaction_can_fail_an_event_with_its_error(q: Penstock) -> None:
    first, second, _ = await q.queue("orders").batch(3).pop()

    await q.transaction().ack(first).ack(second, "dead_letter", error=ValueError("odd")).commit()

    (letter,) = await q.queue("orders").dlq().list()
    assert (letter.data, letter.error) == ({"seq": 1}, "ValueError: odd")


async def test_a_transaction_is_committed_once(q: Penstock) -> None:
    tx = q.transaction().queue("shipments").push(numbered_events(1))
    await tx.commit()

    with pytest.raises(InvalidRequest, match="begin another"):
        await tx.commit()
    with pytest.raises(InvalidRequest, match="begin another"):
        tx.queue("shipments")


async def test_an_empty_transaction(q: Penstock) -> None:
    assert (await q.transaction().ack([]).commit()).acked == 0


async def test_an_exception_as_error_keeps_its_traceback(q: Penstock) -> None:
    (event,) = await q.queue("orders").pop()
    try:
        raise ValueError("not today")
    except ValueError as error:
        await q.transaction().ack(event, "dead_letter", error=error).commit()

    (letter,) = await q.queue("orders").dlq().list()
    assert letter.error == "ValueError: not today"
    assert letter.traceback is not None
    assert 'raise ValueError("not today")' in letter.traceback


@pytest.mark.parametrize("url", ["database"], indirect=True)
async def test_a_transaction_joins_a_user_transaction(q: Penstock, database_url: str) -> None:
    events = await q.queue("orders").batch(3).pop()
    async with await AsyncConnection.connect(database_url) as conn:
        await conn.execute("CREATE TABLE invoices (number integer)")
        await conn.execute("INSERT INTO invoices VALUES (1)")
        async with q.transaction(conn) as tx:
            tx.ack(events)
            tx.queue("shipments").push({"data": {"seq": 7}})
        assert tx.result is not None
        assert tx.result.acked == 3
        assert await q.queue("shipments").pop() == []

    assert sequence_numbers(await q.queue("shipments").pop()) == [7]
    assert await q.queue("orders").lag() == 0
