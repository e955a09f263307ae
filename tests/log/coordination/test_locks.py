"""Locks: one holder at a time, and a fence against those that were replaced."""

from __future__ import annotations

import asyncio
import random

import psycopg
import pytest

from penstock.core.clock import Clock
from penstock.core.errors import InvalidOption, InvalidRequest, PreconditionFailed
from penstock.log.coordination.locks import guard
from penstock.log.log import Log
from tests.corpus.hostile import NAMES
from tests.log.logs import waiting

NAME = "daily-report"


async def test_a_lock_has_one_holder_until_it_is_released(log: Log, other_log: Log) -> None:
    first = await log.locks.acquire(NAME, "a", 60)
    assert first is not None
    assert await other_log.locks.acquire(NAME, "b", 60) is None
    (holder,) = await other_log.locks.holders(NAME)
    assert (holder.owner, holder.token, holder.slot) == ("a", first.token, 0)
    assert not await other_log.locks.release(NAME, first.token + 1)
    assert await log.locks.release(NAME, first.token)
    second = await other_log.locks.acquire(NAME, "b", 60)
    assert second is not None
    assert second.token > first.token


async def test_an_owner_that_asks_again_gets_the_same_permit(log: Log) -> None:
    first = await log.locks.acquire(NAME, "a", 60)
    again = await log.locks.acquire(NAME, "a", 60)
    assert first is not None
    assert again is not None
    assert (again.token, again.already) == (first.token, True)
    renewed = await log.locks.renew(NAME, first.token, 60, owner="a")
    assert renewed is not None
    repeated = await log.locks.renew(NAME, first.token, 60, owner="a")
    assert repeated is not None
    assert first.token < renewed.token < repeated.token
    assert await log.locks.renew(NAME, first.token, 60, owner="b") is None
    assert await log.locks.renew(NAME, first.token, 60) is None


async def test_an_expired_permit_cannot_be_renewed(log: Log, clock: Clock) -> None:
    permit = await log.locks.acquire(NAME, "a", 10)
    assert permit is not None
    clock.advance(11)
    assert await log.locks.holders(NAME) == []
    assert await log.locks.renew(NAME, permit.token, 10, owner="a") is None
    assert not await log.locks.release(NAME, permit.token)


async def test_a_semaphore_never_grants_more_permits_than_its_limit(log: Log, other_log: Log) -> None:
    owners = [(log if n % 2 else other_log, f"owner {n}") for n in range(20)]
    permits = await asyncio.gather(*(each.locks.acquire(NAME, owner, 60, limit=3) for each, owner in owners))
    held = [permit for permit in permits if permit is not None]
    assert sorted(permit.slot for permit in held) == [0, 1, 2]
    assert await log.locks.release(NAME, held[1].token, slot=held[1].slot)
    freed = await log.locks.acquire(NAME, "late", 60, limit=3)
    assert freed is not None
    assert freed.slot == held[1].slot


async def test_two_holders_never_both_write(log: Log, other_log: Log) -> None:
    """Holders with permits that expire in a moment pause at random. Each write under a guard has a higher token."""
    async with log.database.connection() as conn:
        await conn.execute("CREATE TABLE writes (number bigint GENERATED ALWAYS AS IDENTITY, token bigint)")
    chance = random.Random(3)
    refused = 0

    async def hold(each: Log, owner: str) -> None:
        nonlocal refused
        for _ in range(12):
            permit = await each.locks.acquire(NAME, owner, 0.05)
            await asyncio.sleep(chance.random() * 0.1)
            if permit is None:
                continue
            try:
                async with each.database.connection() as conn, conn.transaction():
                    await conn.execute("SELECT penstock.require_lock(%s, %s)", (NAME, permit.token))
                    await asyncio.sleep(chance.random() * 0.1)
                    await conn.execute("INSERT INTO writes (token) VALUES (%s)", (permit.token,))
            except psycopg.errors.ObjectNotInPrerequisiteState:
                refused += 1
            await each.locks.release(NAME, permit.token)

    await asyncio.gather(*(hold(log if n % 2 else other_log, f"owner {n}") for n in range(6)))
    async with log.database.connection() as conn:
        tokens = [row[0] for row in await (await conn.execute("SELECT token FROM writes ORDER BY number")).fetchall()]
    assert tokens == sorted(set(tokens))
    assert tokens
    assert refused


async def test_a_guard_holds_until_its_transaction_ends(
    log: Log, other_log: Log, clock: Clock, database_url: str
) -> None:
    permit = await log.locks.acquire(NAME, "a", 10)
    assert permit is not None
    async with log.database.connection() as conn, conn.transaction():
        await log.kv.apply_on(conn, [guard(NAME, 0, permit.token)])
        clock.advance(11)
        acquiring = asyncio.create_task(other_log.locks.acquire(NAME, "b", 10))
        await waiting(database_url)
        assert not acquiring.done(), "the next holder waits for the transaction of the last one"
    assert await acquiring is not None
    with pytest.raises(PreconditionFailed):
        await log.kv.apply([guard(NAME, 0, permit.token)])


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:20])
async def test_hostile_names_are_locked_or_refused(name: str, log: Log) -> None:
    try:
        permit = await log.locks.acquire(name, name, 60)
    except InvalidRequest:
        assert not name.isprintable() or len(name.encode()) > 256 or "#" in name or not name
        return
    assert permit is not None
    (holder,) = await log.locks.holders(name)
    assert holder.owner == name
    assert await log.locks.release(name, permit.token)


async def test_names_with_a_common_prefix_are_different_locks(log: Log) -> None:
    for name in ("a", "a#0".replace("#", "$"), "a$", "aa", "a b"):
        assert await log.locks.acquire(name, "me", 60) is not None
        assert len(await log.locks.holders(name)) == 1


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e12])
async def test_an_invalid_time_is_refused(seconds: float, log: Log) -> None:
    with pytest.raises(InvalidOption):
        await log.locks.acquire(NAME, "a", seconds)
