"""The calls of the rate limiter's quick start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock


async def test_quickstart_pushes_a_burst_and_pops_it_in_order(database_url: str) -> None:
    async with Penstock(url=database_url) as q:
        await q.queue("rl.requests").config(lease_time=2, retry_limit=1000).create()

        await q.queue("rl.requests").partition("tenant-A").push([{"data": {"seq": i}} for i in range(30)])

        cg = "docs-rl-quickstart-cg"
        arrivals: list[Any] = []
        while len(arrivals) < 30:
            batch = await q.queue("rl.requests").group(cg).batch(10).wait(True).timeout_millis(2000).pop()
            if not batch:
                continue
            for m in batch:
                arrivals.append(m.get("data", {}).get("seq"))
            await q.ack(batch, True, {"group": cg})

        assert arrivals == list(range(30))


async def test_options_in_camel_case(q: Penstock) -> None:
    queue = await q.queue("rl.requests").config({"leaseTime": 2, "retryLimit": 1000}).create()

    assert (queue.lease_seconds, queue.retry_limit) == (2, 1000)


async def test_later_options_win(q: Penstock) -> None:
    handle = q.queue("jobs").config({"leaseTime": 2, "retryLimit": 7}, retry_limit=8).config(lease_seconds=9)

    queue = await handle.create()

    assert (queue.lease_seconds, queue.retry_limit) == (9, 8)


async def test_creating_again_changes_only_given_options(q: Penstock) -> None:
    await q.queue("jobs").config(lease_time=2, retry_limit=7).create()

    queue = await q.queue("jobs").config(lease_time=3).create()

    assert (queue.lease_seconds, queue.retry_limit) == (3, 7)


async def test_an_event_is_a_mapping(q: Penstock) -> None:
    await q.queue("jobs").create()
    await q.queue("jobs").push({"data": {"seq": 1}, "id": "a", "headers": {"trace": "t"}})

    (event,) = await q.queue("jobs").pop()

    assert event["data"] == {"seq": 1}
    assert event["transactionId"] == event["id"] == "a"
    assert event.get("headers") == {"trace": "t"}
    assert event.get("missing", "default") == "default"


async def test_ack_of_no_events(q: Penstock) -> None:
    assert await q.ack([]) == []
    assert await q.ack(None, True, {"group": "g"}) == []


@pytest.mark.slow
async def test_without_a_url_postgresql_is_started(data_dir: Path) -> None:
    async with Penstock(data_dir=data_dir) as q:
        await q.queue("jobs").create()
        await q.queue("jobs").push({"data": "kept"})

    async with Penstock(data_dir=data_dir) as q:
        (event,) = await q.queue("jobs").pop()

    assert event.data == "kept"
