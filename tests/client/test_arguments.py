"""The errors of the client for invalid arguments and calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    ConfigurationError,
    InvalidName,
    InvalidOption,
    InvalidRequest,
    Penstock,
    PenstockError,
    SyncPenstock,
)
from tests.client.conditions import numbered_events
from tests.conditions import eventually_async

URL = "postgresql://localhost/none"


def test_url_and_data_dir_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="give one of the two"):
        Penstock(URL, data_dir=tmp_path)


def test_data_dir_takes_precedence_over_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", "mysql://localhost/none")

    Penstock(data_dir=tmp_path)
    with pytest.raises(ConfigurationError, match="PENSTOCK_DATABASE_URL"):
        Penstock()


@pytest.mark.parametrize("size", [0, "8", True])
def test_pool_size_must_be_a_whole_number(size: Any) -> None:
    with pytest.raises(ConfigurationError, match="pool_size must be a whole number"):
        Penstock(URL, pool_size=size)


async def test_a_client_that_is_not_open_is_refused() -> None:
    with pytest.raises(PenstockError, match=r"not open: use it inside `async with Penstock\(\.\.\.\) as q:`"):
        await Penstock(URL).queue("jobs").pop()


async def test_a_closed_client_can_be_opened_again(database_url: str) -> None:
    q = Penstock(database_url)
    await q.open()
    await q.open()
    await q.close()
    await q.close()

    with pytest.raises(PenstockError, match="this client is closed"):
        await q.queues()
    async with q:
        assert await q.queues() == []


async def test_a_client_on_another_event_loop_is_refused(q: Penstock) -> None:
    def call_on_another_loop() -> None:
        asyncio.run(q.queues())

    with pytest.raises(PenstockError, match="another event loop"):
        await asyncio.to_thread(call_on_another_loop)


async def test_close_ends_a_waiting_pop(database_url: str) -> None:
    q = await Penstock(database_url).open()
    await q.queue("jobs").create()
    pop = asyncio.create_task(q.queue("jobs").group("g").wait().pop())

    async def waits() -> bool:
        return [group.group for group in await q.groups()] == ["g"]

    await eventually_async(waits)
    await q.close()

    with pytest.raises(PenstockError, match="closed while a pop of queue 'jobs' was waiting"):
        await pop


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q: q.push("text"), r"push takes an event such as \{'data': \.\.\.\}, or a list of events, not str"),
        (lambda q: q.push(7), "not int"),
        (lambda q: q.push(b"{}"), "NDJSON goes to push_ndjson"),
        (lambda q: q.push(["text"]), "event 0: event: must be (a mapping|an object)"),
        (lambda q: q.push({"seq": 1}), "put the event's content under 'data'"),
        (lambda q: q.push_ndjson("{}"), "encode the text first"),
        (lambda q: q.fetch(), "fetch reads one partition"),
        (lambda q: q.browse(since=datetime(2026, 1, 1)), "since must be a time with a zone"),
        (lambda q: q.seek(5), "name the partition, too"),
        (lambda q: q.seek("yesterday"), "'yesterday' is not a start position"),
        (lambda q: q.consume("text"), "consume takes a function"),
        (lambda q: q.auto_ack().consume(print), "remove auto_ack"),
        (lambda q: q.consume(print, concurrency=0), "concurrency must be a whole number"),
        (lambda q: q.dlq().get("x"), "id must be a whole number"),
    ],
)
async def test_invalid_operations_are_refused(
    q: Penstock, call: Callable[[Any], Awaitable[object]], message: str
) -> None:
    await q.queue("jobs").create()

    with pytest.raises(InvalidRequest, match=message):
        await call(q.queue("jobs"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda h: h.batch(0), "batch must be a whole number from 1 to 100,000, not 0"),
        (lambda h: h.batch("ten"), "batch must be a whole number"),
        (lambda h: h.partitions(True), "partitions must be a whole number"),
        (lambda h: h.wait(2000), "set the wait time with timeout_millis"),
        (lambda h: h.timeout_millis("2000"), "timeout_millis must be a number"),
        (lambda h: h.lease_seconds(float("nan")), "lease_seconds must be a number"),
        (lambda h: h.auto_ack("yes"), "auto_ack must be True or False"),
        (lambda h: h.subscription_from("yesterday"), "'yesterday' is not a start position"),
        (lambda h: h.subscription_from(7), "give 'beginning', 'now' or a time"),
        (lambda h: h.subscription_mode("old"), "'all' or 'new', not 'old'"),
        (lambda h: h.group(""), "the name of a group must not be empty"),
        (lambda h: h.partition(7), "the key must be text, not int"),
        (lambda h: h.config(leese_time=1), "there is no option 'leese_time'; a queue has"),
        (lambda h: h.config({"leaseTime": "long"}), "lease_time must be a number of seconds, not 'long'"),
        (lambda h: h.config([1]), "config takes keywords or a mapping"),
    ],
)
def test_invalid_settings_are_refused(call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        call(Penstock(URL).queue("jobs"))


def test_an_unknown_option_is_in_the_error() -> None:
    with pytest.raises(InvalidOption) as refusal:
        Penstock(URL).queue("jobs").config({"leaseTim": 1})

    assert refusal.value.option == "lease_tim"


def test_a_queue_name_must_be_text() -> None:
    with pytest.raises(InvalidName, match="the name of a queue must be text, not NoneType"):
        Penstock(URL).queue(None)  # type: ignore[arg-type]  # the error under test


async def test_ack_takes_popped_events(q: Penstock) -> None:
    await q.queue("jobs").create()
    await q.queue("jobs").push(numbered_events(1))
    (event,) = await q.queue("jobs").browse()
    wrong: list[Any] = ["text", 7, [event.to_dict()]]

    for given in wrong:
        with pytest.raises(InvalidRequest, match="ack takes the events"):
            await q.ack(given)
    with pytest.raises(InvalidRequest, match="read and not popped"):
        await q.ack(event)
    with pytest.raises(InvalidRequest, match="so it has no lease to renew"):
        await q.renew(event)
    with pytest.raises(InvalidOption, match="the context of an ack has group and error, not 'grp'"):
        await q.ack(event, True, {"grp": "g"})
    with pytest.raises(InvalidRequest, match="'done' is not the status of an event"):
        await q.ack(event, "done")  # type: ignore[arg-type]  # the error under test


async def test_push_of_several_queues_takes_a_mapping(q: Penstock) -> None:
    with pytest.raises(InvalidRequest, match=r"for one queue call q\.queue\(name\)\.push\(events\)"):
        await q.push(numbered_events(1))  # type: ignore[arg-type]  # the error under test


def test_errors_of_the_synchronous_client(database_url: str) -> None:
    q = SyncPenstock(database_url)

    with pytest.raises(PenstockError, match=r"not open: use it inside `with SyncPenstock\(\.\.\.\) as q:`"):
        q.queues()
    q.open()
    q.close()
    q.close()
    with pytest.raises(PenstockError, match="this client is closed"):
        q.queue("jobs").pop()
