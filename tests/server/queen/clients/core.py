"""Exercises the core of a queen-mq client. Arguments: the URL of the server and the version of the client.

It runs in the environment of the client and fails with a non-zero exit code.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import Any

from queen import Queen

URL = sys.argv[1]
IS_NEW = sys.argv[2].startswith("2.")
NAME = f"core{sys.argv[2]}"


def data(messages: list[dict[str, Any]]) -> list[Any]:
    return [message["data"] for message in messages]


async def refusal(request: Awaitable[Any]) -> str:
    """Return the error of a request that must be refused."""
    try:
        await request
    except Exception as error:
        return str(error)
    raise AssertionError("the request was not refused")


async def producing(q: Queen) -> None:
    name = f"{NAME}.producing"
    made = await q.queue(name).config({"lease_time": 30, "retry_limit": 5}).create()
    assert made["configured"] is True
    assert made["options"]["leaseTime"] == 30
    repeated: list[Any] = []

    async def note(items: list[Any], _error: Exception) -> None:
        repeated.extend(items)

    await q.queue(name).partition("p").push([{"transactionId": "a", "data": 1}, {"transactionId": "b", "data": None}])
    again = [{"transactionId": "a", "data": 9}, {"transactionId": "c", "data": {"deep": [1, "ü"]}}]
    await q.queue(name).partition("p").push(again).on_duplicate(note)
    assert [item["transactionId"] for item in repeated] == ["a"]
    messages = await q.queue(name).partition("p").batch(10).wait(False).pop()
    assert data(messages) == [1, None, {"deep": [1, "ü"]}]
    assert (await q.ack(messages))["success"] is True
    assert await q.queue(name).batch(10).wait(False).pop() == []
    for number in range(25):
        await (
            q.queue(name).partition("buffered").buffer({"message_count": 10, "time_millis": 50}).push({"data": number})
        )
    await q.flush_all_buffers()
    messages = await q.queue(name).partition("buffered").batch(100).wait(True).timeout_millis(5000).pop()
    assert sorted(data(messages)) == list(range(25))
    await q.queue(name).delete()
    assert await q.queue(name).wait(False).pop() == []


async def consuming(q: Queen) -> None:
    name = f"{NAME}.consuming"
    await q.queue(name).create()
    for tenant in "abcd":
        await q.queue(name).partition(tenant).push([{"data": f"{tenant}{i}"} for i in range(10)])
    for group, batch, each in (("one", 1, False), ("each", 10, True), ("many", 10, False)):
        seen: list[str] = []
        done = asyncio.Event()

        async def handle(found: Any, seen: list[str] = seen, done: asyncio.Event = done) -> None:
            seen.extend(data(found) if isinstance(found, list) else [found["data"]])
            if len(seen) >= 40:
                done.set()

        consumer = q.queue(name).group(group).batch(batch).concurrency(2).timeout_millis(300)
        await (consumer.each() if each else consumer).consume(handle, signal=done)
        assert len(seen) == len(set(seen)) == 40, (group, seen)
        for tenant in "abcd":
            assert [one for one in seen if one[0] == tenant] == [f"{tenant}{i}" for i in range(10)]
    wide = await q.queue(name).group("wide").batch(40).partitions(4).wait(False).pop()
    assert len({message["leaseId"] for message in wide}) == 1
    assert len({message["partitionId"] for message in wide}) == 4
    late = q.queue(name).group("late").subscription_mode("new").wait(False)
    assert await late.pop() == []
    await q.queue(name).partition("e").push({"data": "new"})
    assert data(await late.pop()) == ["new"]


async def failing(q: Queen) -> None:
    name = f"{NAME}.failing"
    await q.queue(name).config({"retry_limit": 2}).create()
    await q.queue(name).push([{"transactionId": "bad", "data": "bad"}, {"transactionId": "good", "data": "good"}])
    tries: list[str] = []

    async def handle(message: dict[str, Any]) -> None:
        tries.append(message["data"])
        if message["data"] == "bad":
            raise ValueError("it is bad")

    await q.queue(name).group("g").batch(1).limit(4).timeout_millis(2000).consume(handle)
    assert tries == ["bad", "bad", "bad", "good"], tries
    letters = await q.queue(name).dlq("g").limit(10).get()
    assert letters["total"] == 1
    (letter,) = letters["messages"]
    assert (letter["transactionId"], letter["consumerGroup"], letter["data"]) == ("bad", "g", "bad")
    if IS_NEW:
        assert letter["errorMessage"] == "it is bad"
    back = await q.admin.retry_message(letter["partitionId"], "bad")
    assert back["success"] is True
    messages = await q.queue(name).group("g").wait(True).timeout_millis(5000).pop()
    assert data(messages) == ["bad"]
    assert (await q.ack(messages[0], True, {"group": "g"}))["success"] is True
    assert (await q.queue(name).dlq("g").get())["total"] == 0


async def acknowledging(q: Queen) -> None:
    name = f"{NAME}.acknowledging"
    await q.queue(name).create()
    await q.queue(name).push([{"data": i} for i in range(5)])
    messages = await q.queue(name).batch(5).wait(False).pop()
    messages[1]["_status"] = False
    answer = await q.ack(messages)
    assert [each["success"] for each in answer["results"]] == [True, True, False, False, False]
    messages = await q.queue(name).batch(5).wait(False).pop()
    assert data(messages) == [1, 2, 3, 4]
    assert (await q.ack(messages[3]))["success"] is True
    assert (await q.ack(messages[0]))["noop"] is True
    assert "committed" in (await q.ack(messages[0], False))["error"]
    assert "unresolv" in (await q.ack({**messages[0], "transactionId": "none"}))["error"]
    await q.queue(name).push({"data": 5})
    (message,) = await q.queue(name).wait(False).pop()
    renewed = await q.renew(message)
    assert renewed["success"] is True, renewed
    assert (await q.ack(message, "retry"))["success"] is True
    gone = await q.renew(message)
    if IS_NEW:
        assert gone["success"] is False
    if IS_NEW:
        (message,) = await q.queue(name).wait(False).commit_on_delivery().pop()
        assert message["leaseId"] == ""
        assert await q.queue(name).wait(False).pop() == []


async def renewing(q: Queen) -> None:
    name = f"{NAME}.renewing"
    await q.queue(name).config({"lease_time": 1}).create()
    await q.queue(name).push({"data": "slow"})
    begun, finish = asyncio.Event(), asyncio.Event()

    async def handle(_message: dict[str, Any]) -> None:
        begun.set()
        await finish.wait()

    consumer = q.queue(name).batch(1).limit(1).timeout_millis(2000).renew_lease(True, 300)
    first = asyncio.ensure_future(consumer.consume(handle)._execute())
    await begun.wait()
    # The wait is longer than the lease, which the client renews.
    assert await q.queue(name).batch(1).wait(True).timeout_millis(1200).pop() == []
    finish.set()
    await first
    assert await q.queue(name).batch(1).wait(False).pop() == []


async def transacting(q: Queen) -> None:
    source, sink = f"{NAME}.source", f"{NAME}.sink"
    await q.queue(source).create()
    await q.queue(source).push([{"data": 1}, {"data": 2}])
    first, second = await q.queue(source).batch(2).wait(False).pop()
    done = await q.transaction().ack(first).queue(sink).partition("p").push([{"data": 10}, {"data": 11}]).commit()
    assert done["success"] is True
    assert [each["type"] for each in done["results"]] == ["ack", "push", "push"]
    assert data(await q.queue(sink).batch(5).wait(False).pop()) == [10, 11]
    await q.ack(second, "retry")
    stale = q.transaction().ack(second).queue(sink).partition("q").push({"data": 12})
    error = await refusal(stale.commit())
    assert "rolled back" in error, error
    assert "lease" in error, error
    assert await q.queue(sink).partition("q").wait(False).pop() == []
    (again,) = await q.queue(source).batch(2).wait(False).pop()
    await q.transaction().ack(again, "dlq").queue(sink).partition("q").push({"data": 13}).commit()
    assert (await q.queue(source).dlq().get())["total"] == 1


async def tracing(q: Queen) -> None:
    name = f"{NAME}.tracing"
    await q.queue(name).create()
    await q.queue(name).push({"transactionId": "traced", "data": {"order": 7}})
    noted: list[dict[str, Any]] = []

    async def handle(message: dict[str, Any]) -> None:
        config = {"traceName": [f"order-7-{NAME}"], "eventType": "step", "data": {"text": "begun"}}
        assert (await message["trace"](config))["success"] is True
        noted.append(message)

    await q.queue(name).group("g").batch(1).limit(1).timeout_millis(2000).consume(handle)
    partition = noted[0]["partitionId"]
    (trace,) = (await q.admin.get_traces_for_message(partition, "traced"))["traces"]
    assert (trace["event_type"], trace["data"], trace["consumer_group"]) == ("step", {"text": "begun"}, "g")
    by_name = await q.admin.get_traces_by_name(f"order-7-{NAME}")
    assert (by_name["total"], by_name["traces"][0]["message_payload"]) == (1, {"order": 7})
    names = await q.admin.get_trace_names(limit=10)
    assert f"order-7-{NAME}" in [each["trace_name"] for each in names["trace_names"]]


async def administering(q: Queen) -> None:
    name = f"{NAME}.administering"
    await q.queue(name).namespace(NAME).task("admin").create()
    await q.queue(name).push([{"transactionId": f"m{i}", "data": i} for i in range(3)])
    by_task = q.queue().namespace(NAME).task("admin").group("g").batch(1).wait(True).timeout_millis(3000)
    (message,) = await by_task.pop()
    assert (await q.admin.health())["status"] == "healthy"
    listed = await q.admin.list_queues(namespace=NAME)
    assert name in [queue["name"] for queue in listed["queues"]]
    assert (await q.admin.get_queue(name))["task"] == "admin"
    assert NAME in [each["name"] for each in (await q.admin.get_namespaces())["namespaces"]]
    assert "admin" in [each["name"] for each in (await q.admin.get_tasks())["tasks"]]
    assert [each["name"] for each in (await q.admin.get_partitions(queue=name))["partitions"]] == ["Default"]
    groups = await q.admin.list_consumer_groups()
    assert [each["totalLag"] for each in groups if each["queueName"] == name] == [3]
    assert (await q.admin.get_consumer_group("g"))[name]["partitions"][0]["leaseActive"] is True
    assert name in [each["queue_name"] for each in await q.admin.get_lagging_consumers(0)]
    assert (await q.admin.refresh_consumer_stats())["success"] is True
    page = (await q.admin.list_messages(queue=name, limit=2))["messages"]
    assert [each["transactionId"] for each in page] == ["m2", "m1"]
    one = await q.admin.get_message(message["partitionId"], "m0")
    assert (one["payload"], one["status"]) == (0, "processing")
    sought = await q.admin.seek_consumer_group("g", name, {"toEnd": True})
    assert sought["success"] is True
    assert await q.queue(name).group("g").wait(False).pop() == []
    assert "append-only" in await refusal(q.admin.delete_message(message["partitionId"], "m0"))
    gone = await q.admin.delete_consumer_group_for_queue("g", name)
    assert gone["deletedPartitions"] == 1
    assert data(await q.queue(name).group("g").wait(False).batch(1).pop()) == [0]


async def main() -> None:
    steps = (producing, consuming, failing, acknowledging, renewing, transacting, tracing, administering)
    async with Queen(url=URL) as q:
        await asyncio.gather(*(step(q) for step in steps))


asyncio.run(main())
