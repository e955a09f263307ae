"""What the client says when it is asked for something that cannot be."""

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
from tests.client.conditions import eventually, numbered

URL = "postgresql://localhost/none"


def test_a_url_and_a_data_dir_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="give one of the two"):
        Penstock(URL, data_dir=tmp_path)


def test_a_directory_means_the_postgresql_in_it_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", "mysql://localhost/none")

    Penstock(data_dir=tmp_path)
    with pytest.raises(ConfigurationError, match="PENSTOCK_DATABASE_URL"):
        Penstock()


@pytest.mark.parametrize("size", [0, "8", True])
def test_a_pool_has_a_whole_number_of_connections(size: Any) -> None:
    with pytest.raises(ConfigurationError, match="pool_size must be a whole number"):
        Penstock(URL, pool_size=size)


async def test_a_client_that_was_not_opened_says_how() -> None:
    with pytest.raises(PenstockError, match=r"not open: use it inside `async with Penstock\(\.\.\.\) as q:`"):
        await Penstock(URL).queue("jobs").pop()


async def test_a_closed_client_says_so_and_can_be_opened_again(database_url: str) -> None:
    q = Penstock(database_url)
    await q.open()
    await q.open()
    await q.close()
    await q.close()

    with pytest.raises(PenstockError, match="this client is closed"):
        await q.queues()
    async with q:
        assert await q.queues() == []


async def test_a_client_of_another_event_loop_is_refused(q: Penstock) -> None:
    def elsewhere() -> None:
        asyncio.run(q.queues())

    with pytest.raises(PenstockError, match="another event loop"):
        await asyncio.to_thread(elsewhere)


async def test_closing_ends_a_pop_that_waits(database_url: str) -> None:
    q = await Penstock(database_url).open()
    await q.queue("jobs").create()
    pop = asyncio.create_task(q.queue("jobs").group("g").wait().pop())

    async def waits() -> bool:
        return [group.group for group in await q.groups()] == ["g"]

    await eventually(waits)
    await q.close()

    with pytest.raises(PenstockError, match="closed while a pop of queue 'jobs' was waiting"):
        await pop


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda q: q.push("text"), r"push takes an event such as \{'data': \.\.\.\}, or a list of them, not str"),
        (lambda q: q.push(7), "not int"),
        (lambda q: q.push(b"{}"), "NDJSON goes to push_ndjson"),
        (lambda q: q.push(["text"]), "event 0: event: must be a mapping"),
        (lambda q: q.push({"seq": 1}), "put the event's content under 'data'"),
        (lambda q: q.push_ndjson("{}"), "encode the text first"),
        (lambda q: q.fetch(), "fetch reads one partition"),
        (lambda q: q.browse(since=datetime(2026, 1, 1)), "since must be a datetime with a time zone"),
        (lambda q: q.seek(5), "name the partition too"),
        (lambda q: q.seek("yesterday"), "'yesterday' is no place"),
        (lambda q: q.consume("text"), "consume takes a function"),
        (lambda q: q.auto_ack().consume(print), "leave auto_ack"),
        (lambda q: q.consume(print, concurrency=0), "concurrency must be a whole number"),
        (lambda q: q.dlq().get("x"), "id must be a whole number"),
    ],
)
async def test_what_cannot_be_done_is_refused_in_words(
    q: Penstock, act: Callable[[Any], Awaitable[object]], says: str
) -> None:
    await q.queue("jobs").create()

    with pytest.raises(InvalidRequest, match=says):
        await act(q.queue("jobs"))


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda h: h.batch(0), "batch must be a whole number from 1 to 100,000, not 0"),
        (lambda h: h.batch("ten"), "batch must be a whole number"),
        (lambda h: h.partitions(True), "partitions must be a whole number"),
        (lambda h: h.wait(2000), "for how long is said with timeout_millis"),
        (lambda h: h.timeout_millis("2000"), "timeout_millis must be a number"),
        (lambda h: h.lease_seconds(float("nan")), "lease_seconds must be a number"),
        (lambda h: h.auto_ack("yes"), "auto_ack takes True or False"),
        (lambda h: h.subscription_from("yesterday"), "'yesterday' is no place"),
        (lambda h: h.subscription_from(7), "give 'beginning', 'now' or a time"),
        (lambda h: h.subscription_mode("old"), "'all' or 'new', not 'old'"),
        (lambda h: h.group(""), "the name of a group must not be empty"),
        (lambda h: h.partition(7), "the key must be text, not int"),
        (lambda h: h.config(leese_time=1), "there is no option 'leese_time'; a queue has"),
        (lambda h: h.config({"leaseTime": "long"}), "lease_time must be a number of seconds, not 'long'"),
        (lambda h: h.config([1]), "config takes keywords or a mapping"),
    ],
)
def test_a_bad_choice_is_refused_where_it_is_made(act: Callable[[Any], object], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        act(Penstock(URL).queue("jobs"))


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(InvalidOption) as refusal:
        Penstock(URL).queue("jobs").config({"leaseTim": 1})

    assert refusal.value.option == "lease_tim"


def test_a_queue_needs_a_name() -> None:
    with pytest.raises(InvalidName, match="the name of a queue must be text, not NoneType"):
        Penstock(URL).queue(None)  # type: ignore[arg-type]  # what the test is about


async def test_an_ack_takes_the_events_themselves(q: Penstock) -> None:
    await q.queue("jobs").create()
    await q.queue("jobs").push(numbered(1))
    (event,) = await q.queue("jobs").browse()
    wrong: list[Any] = ["text", 7, [event.to_dict()]]

    for given in wrong:
        with pytest.raises(InvalidRequest, match="ack takes the events"):
            await q.ack(given)
    with pytest.raises(InvalidRequest, match="read and not popped"):
        await q.ack(event)
    with pytest.raises(InvalidRequest, match="no lease that could be renewed"):
        await q.renew(event)
    with pytest.raises(InvalidOption, match="there is no 'grp' in the context"):
        await q.ack(event, True, {"grp": "g"})
    with pytest.raises(InvalidRequest, match="'done' cannot be said of an event"):
        await q.ack(event, "done")  # type: ignore[arg-type]  # what the test is about


async def test_push_of_several_queues_explains_itself(q: Penstock) -> None:
    with pytest.raises(InvalidRequest, match=r"for one queue it is q\.queue\(name\)\.push\(events\)"):
        await q.push(numbered(1))  # type: ignore[arg-type]  # what the test is about


def test_the_synchronous_client_explains_itself_in_its_own_words(database_url: str) -> None:
    q = SyncPenstock(database_url)

    with pytest.raises(PenstockError, match=r"not open: use it inside `with SyncPenstock\(\.\.\.\) as q:`"):
        q.queues()
    q.open()
    q.close()
    q.close()
    with pytest.raises(PenstockError, match="this client is closed"):
        q.queue("jobs").pop()
