"""Invalid names, options and parameters are refused with a precise error."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from penstock.core.errors import (
    InvalidName,
    InvalidOption,
    InvalidRequest,
    NotFound,
    PenstockError,
)
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.log import Log
from penstock.log.read.ack import EventStatus
from penstock.log.read.pop_request import PopRequest
from penstock.log.write.encode.batch import Batch
from tests.log.logs import GROUP, QUEUE, ask, data, drain, pop, push

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def log(clean_log: Log) -> Log:
    return clean_log


# Names


BAD_NAMES: list[Any] = [
    "",
    " ",
    " a",
    "a ",
    "a\n",
    "a\x00b",
    "\x7f",
    "\u2028",
    "\ud800",
    "x" * 201,
    None,
    7,
    b"a",
    ["a"],
    True,
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name)[:20])
async def test_a_bad_name_is_refused_wherever_it_is_given(log: Log, name: Any) -> None:
    with pytest.raises(InvalidName):
        await log.configure(name)
    with pytest.raises(InvalidName):
        await log.push([Batch(name, [{"data": 1}])])
    with pytest.raises(InvalidName):
        await log.pop(PopRequest(name))
    with pytest.raises(InvalidName):
        await log.pop(PopRequest(QUEUE, name))
    with pytest.raises(InvalidName):
        await log.subscribe(QUEUE, name)
    with pytest.raises(InvalidName):
        await log.describe(name)
    with pytest.raises(InvalidName):
        await log.delete_queue(name)
    if name is not None:
        with pytest.raises(InvalidName):
            await push(log, [1], idempotency_key=name)
    assert len(await log.queues()) == 2


async def test_any_printable_name_is_accepted(log: Log, shared_url: str) -> None:
    names = [
        "'; DROP SCHEMA penstock CASCADE; --",
        '"',
        "%s %(name)s {chunks}",
        "a/b.c:d",
        "\u20ac\U0001f600",
        "../../etc/passwd",
        "x" * 200,
        "Default",
        "a  b",
        "SELECT",
    ]
    for name in names:
        await log.configure(name)
        await log.subscribe(name, name)
        await push(log, [name], queue=name, key=name, idempotency_key=name)
        assert data(await drain(log, name, group=name)) == [name]
    assert {queue.name for queue in await log.queues()} == {*names, QUEUE, "hashed"}
    assert ask(shared_url, "SELECT count(*) FROM penstock.groups") == len(names)
    for name in names:
        assert await log.delete_queue(name)


async def test_missing_objects_raise_not_found(log: Log) -> None:
    for attempt in (
        log.push([Batch("nowhere", [{"data": 1}])]),
        log.pop(PopRequest("nowhere")),
        log.describe("nowhere"),
        log.seek("nowhere", GROUP, "end"),
        log.seek(QUEUE, "nobody", "end"),
        log.group_positions(QUEUE, "nobody"),
        log.groups("nowhere"),
        log.delete_group("nowhere", GROUP),
        log.repartition("nowhere", "hash", 2),
        log.fetch("nowhere", "a"),
        log.fetch(QUEUE, "nowhere"),
        log.browse("nowhere"),
        log.find("nowhere", "a"),
        log.dead_letter(7),
        log.dead_letters(DeadLetterFilter(queue="nowhere")),
        log.redrive(DeadLetterFilter(queue="nowhere")),
        log.purge(DeadLetterFilter(queue="nowhere")),
    ):
        with pytest.raises(NotFound):
            await attempt
    assert await log.delete_queue("nowhere") is False
    assert await log.delete_group(QUEUE, "nobody") is False
    assert await log.find(QUEUE, "nothing") is None
    assert await pop(log, partition="nowhere") == []


# Options and requests


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("unknown", 1),
        ("leaseSeconds", 1),
        ("", 1),
        ("lease_seconds", 0),
        ("lease_seconds", -1),
        ("lease_seconds", "60"),
        ("lease_seconds", True),
        ("lease_seconds", math.nan),
        ("lease_seconds", math.inf),
        ("lease_seconds", 10**400),
        ("lease_seconds", Decimal(60)),
        ("lease_seconds", [60]),
        ("retry_limit", -1),
        ("retry_limit", 1.5),
        ("retry_limit", True),
        ("retry_limit", 10**10),
        ("retry_delay_ms", 0.5),
        ("delay_seconds", -0.1),
        ("retention_seconds", 0),
        ("retention_seconds", math.inf),
        ("retention_seconds", 10**400),
        ("retention_drops_unread", 1),
        ("retention_drops_unread", "yes"),
        ("dedup_window_seconds", -1),
        ("max_depth_events", 0),
        ("max_depth_events", 2**63),
        ("max_event_bytes", 0),
        ("max_event_bytes", 2**31),
        ("max_redrives", -1),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_a_bad_option_is_refused_by_name(log: Log, option: str, value: Any) -> None:
    for name in (QUEUE, "new"):
        with pytest.raises(InvalidOption) as refusal:
            await log.configure(name, {option: value})
        assert refusal.value.option == option
        assert repr(option)[1:-1] in str(refusal.value)
    assert len(await log.queues()) == 2


async def test_an_option_and_its_alias_conflict(log: Log) -> None:
    with pytest.raises(InvalidOption):
        await log.configure(QUEUE, {"lease_seconds": 60, "lease_time": 60})


async def test_configure_keeps_options_that_are_not_named(log: Log) -> None:
    await log.configure(QUEUE, {"retry_limit": 7, "retention_seconds": 100})
    queue = await log.configure(QUEUE, {"lease_seconds": 9, "retention_seconds": None})
    assert (queue.retry_limit, queue.lease_seconds, queue.retention_seconds) == (7, 9, None)


@pytest.mark.parametrize(
    ("partitioning", "partitions"),
    [("hash", 0), ("hash", -1), ("hash", 1025), ("hash", 1.5), ("hash", True), ("hash", "8"), ("key", 2), ("range", 2)],
)
async def test_a_bad_partitioning_is_refused(log: Log, partitioning: str, partitions: Any) -> None:
    with pytest.raises(InvalidOption):
        await log.configure("new", partitioning=partitioning, partitions=partitions)
    with pytest.raises(InvalidOption):
        await log.repartition(QUEUE, partitioning, partitions)


@pytest.mark.parametrize(
    "asked",
    [
        {"batch": 0},
        {"batch": -1},
        {"batch": 1.5},
        {"batch": True},
        {"batch": "1"},
        {"batch": 100_001},
        {"partitions": 0},
        {"wait_seconds": -1},
        {"wait_seconds": math.nan},
        {"wait_seconds": "1"},
        {"lease_seconds": 0},
        {"lease_seconds": math.nan},
        {"lease_seconds": 10**9},
        {"lease_seconds": "1"},
        {"partition": 7},
        {"partition": "a\x00b"},
        {"partition": "\ud800"},
        {"subscribe_from": "yesterday"},
        {"subscribe_from": datetime(2026, 1, 1)},
        {"subscribe_from": -1},
        {"subscribe_from": None},
    ],
    ids=repr,
)
async def test_a_bad_pop_is_refused(log: Log, asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        async with asyncio.timeout(5):
            await log.pop(PopRequest(QUEUE, **asked))


@pytest.mark.parametrize("place", ["", "yesterday", -1, 1.5, None, True, datetime(2026, 1, 1), b"end"], ids=repr)
async def test_a_bad_start_position_is_refused(log: Log, place: Any) -> None:
    await log.subscribe(QUEUE, GROUP)
    with pytest.raises(InvalidRequest):
        await log.seek(QUEUE, GROUP, place, partition="ada")


async def test_an_offset_needs_a_partition(log: Log) -> None:
    await log.subscribe(QUEUE, GROUP)
    with pytest.raises(InvalidRequest, match="partition"):
        await log.seek(QUEUE, GROUP, 3)


@pytest.mark.parametrize("status", ["done", "", None, 2, "Completed", [], {}], ids=repr)
async def test_a_bad_status_is_refused(log: Log, status: Any) -> None:
    await push(log, [1])
    events = await pop(log)
    with pytest.raises(InvalidRequest, match="completed"):
        await log.ack(events, status)
    with pytest.raises(InvalidRequest):
        await log.ack_each([EventStatus(events[0], status)])
    with pytest.raises(InvalidRequest):
        await log.transact([EventStatus(events[0], status)], [])
    assert all(await log.ack(events))


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 1e300, "60", None], ids=repr)
async def test_a_bad_extension_is_refused(log: Log, seconds: Any) -> None:
    await push(log, [1])
    events = await pop(log)
    with pytest.raises(InvalidRequest):
        await log.extend(events, seconds)
    assert all(await log.ack(events))


TEXTS = ["a\x00b", "\ud800", "", "nowhere", "x" * 5000]
NUMBERS = [-1, 0, 2**70, -(2**70)]
TIMES_WITHOUT_ZONE = [datetime(2026, 1, 1)]

LOOKING: dict[str, tuple[Callable[[Log, Any], Awaitable[object]], list[Any]]] = {
    "fetch of a partition": (lambda log, odd: log.fetch(QUEUE, odd), TEXTS),
    "fetch from an offset": (lambda log, odd: log.fetch(QUEUE, "ada", odd), NUMBERS),
    "fetch with a limit": (lambda log, odd: log.fetch(QUEUE, "ada", 0, odd), NUMBERS),
    "browse of a key": (lambda log, odd: log.browse(QUEUE, key=odd), TEXTS),
    "browse of a partition": (lambda log, odd: log.browse(QUEUE, partition=odd), TEXTS),
    "browse since a time": (lambda log, odd: log.browse(QUEUE, since=odd), TIMES_WITHOUT_ZONE),
    "browse with a limit": (lambda log, odd: log.browse(QUEUE, limit=odd), NUMBERS),
    "find": (lambda log, odd: log.find(QUEUE, odd), TEXTS),
    "seek in a partition": (lambda log, odd: log.seek(QUEUE, GROUP, "end", partition=odd), TEXTS),
    "seek to an offset": (lambda log, odd: log.seek(QUEUE, GROUP, odd, partition="ada"), NUMBERS),
    "seek of a group": (lambda log, odd: log.seek(QUEUE, odd, "end"), TEXTS),
    "positions of a group": (lambda log, odd: log.group_positions(QUEUE, odd), TEXTS),
    "delete of a group": (lambda log, odd: log.delete_group(QUEUE, odd), TEXTS),
    "a dead letter": (lambda log, odd: log.dead_letter(odd), NUMBERS),
    "dead letters with a limit": (lambda log, odd: log.dead_letters(DeadLetterFilter(queue=QUEUE), limit=odd), NUMBERS),
    "dead letters from an offset": (
        lambda log, odd: log.dead_letters(DeadLetterFilter(queue=QUEUE), offset=odd),
        NUMBERS,
    ),
    "dead letters by id": (lambda log, odd: log.dead_letters(DeadLetterFilter(ids=[odd])), NUMBERS),
    "dead letters of a group": (lambda log, odd: log.dead_letters(DeadLetterFilter(group=odd)), TEXTS),
    "dead letters of a key": (lambda log, odd: log.dead_letters(DeadLetterFilter(key=odd)), TEXTS),
    "dead letters by error": (lambda log, odd: log.dead_letters(DeadLetterFilter(error=odd)), TEXTS),
    "dead letters since a time": (lambda log, odd: log.dead_letters(DeadLetterFilter(since=odd)), TIMES_WITHOUT_ZONE),
    "redrive with a limit": (lambda log, odd: log.redrive(DeadLetterFilter(queue=QUEUE), limit=odd), NUMBERS),
    "purge of a key": (lambda log, odd: log.purge(DeadLetterFilter(queue=QUEUE, key=odd)), TEXTS),
}


@pytest.mark.parametrize("how", LOOKING)
async def test_odd_searches_return_a_result_or_a_penstock_error(log: Log, how: str) -> None:
    await push(log, [1], key="ada")
    await log.subscribe(QUEUE, GROUP)
    problems: dict[str, str] = {}
    look, odd = LOOKING[how]
    for value in odd:
        try:
            async with asyncio.timeout(5):
                await look(log, value)
        except PenstockError:
            continue
        except Exception as error:
            problems[repr(value)[:40]] = repr(error)
    assert problems == {}


async def test_a_browse_limit_below_one_is_refused(log: Log) -> None:
    await push(log, [1, 2])
    with pytest.raises(InvalidRequest):
        await log.browse(QUEUE, limit=0)
    assert len(await log.browse(QUEUE, limit=1)) == 1
