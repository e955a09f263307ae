"""Entries of the key-value store: versions, expiry, atomic operations, batches."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from penstock.core import json
from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequest, PreconditionFailed
from penstock.log.coordination.kv import MAX_READ_BYTES, MAX_VALUE_BYTES, KvOperation, KvResult
from penstock.log.log import Log
from tests.corpus.hostile import NAMES

NAMESPACE = "orders"


def put(key: str, value: Any, **options: Any) -> KvOperation:
    return KvOperation("put", NAMESPACE, key, Raw(json.encode(value)), **options)


async def run(log: Log, operation: KvOperation) -> KvResult:
    (result,) = await log.kv.apply([operation])
    return result


async def value_of(log: Log, key: str) -> Any:
    entry = (await run(log, KvOperation("get", NAMESPACE, key))).entry
    return None if entry is None else json.decode(bytes(entry.value))


async def test_expect_applies_only_to_the_version_that_was_read(log: Log) -> None:
    first = await run(log, put("a", 1))
    assert first.entry is not None
    second = await run(log, put("a", 2, expect=first.entry.version))
    stale = await run(log, put("a", 3, expect=first.entry.version))
    assert (second.applied, stale.applied, stale.reason, stale.entry) == (True, False, "version", second.entry)
    absent = await run(log, put("b", 1, expect=first.entry.version))
    assert (absent.applied, absent.reason, absent.entry) == (False, "absent", None)
    assert await value_of(log, "b") is None


async def test_versions_rise_over_deletion_and_expiry(log: Log, clock: Clock) -> None:
    versions = []
    for _ in range(3):
        result = await run(log, put("a", 1, seconds=10, expect=0))
        assert result.entry is not None
        versions.append(result.entry.version)
        assert (await run(log, KvOperation("delete", NAMESPACE, "a"))).applied
        result = await run(log, put("a", 1, seconds=10, expect=0))
        assert result.entry is not None
        versions.append(result.entry.version)
        clock.advance(11)
        await log.upkeep()
    assert versions == sorted(set(versions))


async def test_one_of_many_concurrent_creations_is_applied(log: Log, other_log: Log) -> None:
    results = await asyncio.gather(*(run(each, put("a", n, expect=0)) for n in range(10) for each in (log, other_log)))
    (winner,) = [result for result in results if result.applied]
    assert {result.reason for result in results if not result.applied} == {"exists"}
    assert all(result.entry == winner.entry for result in results)


async def test_concurrent_increments_are_all_counted(log: Log, other_log: Log) -> None:
    increment = KvOperation("increment", NAMESPACE, "hits", delta=3)
    await asyncio.gather(*(run(each, increment) for _ in range(20) for each in (log, other_log)))
    assert await value_of(log, "hits") == 120


async def test_a_limit_refuses_the_increment_and_keeps_the_value(log: Log, clock: Clock) -> None:
    increment = KvOperation("increment", NAMESPACE, "quota", delta=2, maximum=5, seconds=60)
    assert [(await run(log, increment)).applied for _ in range(4)] == [True, True, False, False]
    assert await value_of(log, "quota") == 4
    clock.advance(30)
    assert (await run(log, KvOperation("increment", NAMESPACE, "quota", delta=1, seconds=60))).applied
    clock.advance(31)
    assert await value_of(log, "quota") is None, "an increment does not extend the time to live"
    too_much = await run(log, KvOperation("increment", NAMESPACE, "quota", delta=9, maximum=5, seconds=60))
    assert (too_much.applied, too_much.reason) == (False, "limit")


async def test_an_increment_of_other_values_is_refused_until_they_expire(log: Log, clock: Clock) -> None:
    await run(log, put("a", {"count": 1}, seconds=5))
    refused = await run(log, KvOperation("increment", NAMESPACE, "a"))
    assert (refused.applied, refused.reason) == (False, "type")
    clock.advance(6)
    assert (await run(log, KvOperation("increment", NAMESPACE, "a", delta=0.1))).applied
    await run(log, KvOperation("increment", NAMESPACE, "a", delta=0.2))
    assert await value_of(log, "a") == 0.3


async def test_a_lost_required_operation_rolls_the_batch_back(log: Log) -> None:
    await run(log, put("taken", 1))
    with pytest.raises(PreconditionFailed) as raised:
        await log.kv.apply([put("new", 1), put("taken", 2, expect=0, required=True), put("newer", 1)])
    assert (raised.value.index, raised.value.result.reason) == (1, "exists")
    assert (await value_of(log, "new"), await value_of(log, "taken")) == (None, 1)


async def test_a_batch_sees_its_own_changes_in_order(log: Log) -> None:
    results = await log.kv.apply(
        [
            put("a", 1),
            KvOperation("increment", NAMESPACE, "a"),
            KvOperation("get", NAMESPACE, "a"),
            KvOperation("delete", NAMESPACE, "a"),
            KvOperation("get", NAMESPACE, "a"),
        ]
    )
    assert results[2].entry is not None
    assert results[2].entry.value == Raw(b"2")
    assert [result.applied for result in results] == [True, True, True, True, False]


async def test_batches_with_the_same_keys_in_any_order_do_not_block_each_other(log: Log, other_log: Log) -> None:
    def batch(keys: list[str]) -> list[KvOperation]:
        return [KvOperation("increment", NAMESPACE, key) for key in keys]

    there, back = batch(["a", "b", "c"]), batch(["c", "b", "a"])
    await asyncio.gather(
        *(each.kv.apply(order) for _ in range(15) for each, order in ((log, there), (other_log, back)))
    )
    assert [await value_of(log, key) for key in "abc"] == [30, 30, 30]


async def test_a_prefix_is_text_and_pages_are_complete(log: Log) -> None:
    keys = sorted(["a%_:1", "a%_:2", "a%_:3", "a%_", "ax:1", "a", "b", "a%_:\U0010ffff"], key=str.encode)
    await log.kv.apply([put(key, key) for key in keys])
    found: list[str] = []
    after = ""
    while True:
        page = await run(log, KvOperation("get_prefix", NAMESPACE, prefix="a%_", after=after, limit=2))
        found += [entry.key for entry in page.entries]
        if not page.truncated:
            break
        after = found[-1]
    assert found == [key for key in keys if key.startswith("a%_")]


async def test_get_many_returns_missing_keys(log: Log) -> None:
    await run(log, put("a", 1))
    result = await run(log, KvOperation("get_many", NAMESPACE, keys=["a", "b"]))
    assert ([entry.key for entry in result.entries], result.missing, result.truncated) == (["a"], ["b"], False)


async def test_large_values_are_stored_and_reads_of_many_are_truncated(log: Log) -> None:
    text = "x" * (MAX_VALUE_BYTES - 2)
    keys = [f"large {n}" for n in range(MAX_READ_BYTES // MAX_VALUE_BYTES + 3)]
    for key in keys:
        await run(log, put(key, text))
    assert await value_of(log, keys[0]) == text
    page = await run(log, KvOperation("get_prefix", NAMESPACE, prefix="large"))
    assert page.truncated
    assert 0 < len(page.entries) < len(keys)
    many = await run(log, KvOperation("get_many", NAMESPACE, keys=keys))
    assert (many.truncated, many.missing) == (True, [])
    with pytest.raises(InvalidRequest, match="bytes"):
        await run(log, put("a", text + "x"))


async def test_a_call_that_reads_too_much_is_refused(log: Log) -> None:
    """An entry that does not fit into the result must not look like an absent one."""
    await run(log, put("large", "x" * (MAX_VALUE_BYTES - 2)))
    count = MAX_READ_BYTES // MAX_VALUE_BYTES + 2
    for operation in (
        KvOperation("get", NAMESPACE, "large"),
        KvOperation("check", NAMESPACE, "large", expect=0),
        KvOperation("get_prefix", NAMESPACE, prefix="large"),
        put("large", 1, expect=0),
    ):
        with pytest.raises(InvalidRequest, match="8 MiB"):
            await log.kv.apply([operation] * count)
    results = await log.kv.apply([put("large", "x" * (MAX_VALUE_BYTES - 2))] * count)
    assert all(result.applied for result in results)


async def test_a_short_number_with_a_long_text_is_refused(log: Log) -> None:
    numbers = b"[" + b",".join([b"1e100000"] * 20) + b"]"
    with pytest.raises(InvalidRequest, match="without exponents"):
        await run(log, KvOperation("put", NAMESPACE, "a", Raw(numbers)))
    assert (await run(log, KvOperation("put", NAMESPACE, "a", Raw(b'[1e300, "1e9999999"]')))).applied


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:20])
async def test_hostile_keys_and_values_are_stored_or_refused(name: str, log: Log) -> None:
    try:
        await run(log, put(name, {"text": name}))
    except (InvalidRequest, json.JSONProblem):
        assert (await run(log, put("a", 1))).applied
        return
    assert await value_of(log, name) == {"text": name}
    page = await run(log, KvOperation("get_prefix", NAMESPACE, prefix=name))
    assert [entry.key for entry in page.entries] == [name]


async def test_a_value_that_postgresql_cannot_store_is_refused(log: Log) -> None:
    with pytest.raises(InvalidRequest, match="'a' is not possible"):
        await run(log, put("a", "a\x00b"))


async def test_upkeep_deletes_expired_rows(log: Log) -> None:
    await log.kv.apply([put("gone", 1, seconds=0.001), put("kept", 1, seconds=60), put("forever", 1)])
    async with log.database.connection() as conn:
        await conn.execute("SELECT penstock.lock_kv('orders', i::text) FROM generate_series(1, 20500) AS i")
        await log.upkeep()
        rows = await (await conn.execute("SELECT key FROM penstock.kv ORDER BY 1")).fetchall()
    assert rows == [("forever",), ("kept",)]


async def test_sql_functions_and_the_view(log: Log) -> None:
    async with log.database.connection() as conn:
        await conn.execute("SELECT penstock.kv_put('orders', 'a', '{\"n\": 1}', 60)")
        await conn.execute("SELECT penstock.kv_increment('orders', 'b', 2)")
        rows = await (
            await conn.execute("SELECT key, value, expires_at IS NULL FROM penstock.kv_entries ORDER BY key")
        ).fetchall()
    assert rows == [("a", {"n": 1}, False), ("b", 2, True)]
    assert await value_of(log, "a") == {"n": 1}
