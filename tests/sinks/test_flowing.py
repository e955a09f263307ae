"""Sinks beside a query: none that is in trouble holds back the query, or the other sinks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from penstock import Stream
from penstock.core.errors import SinkClosed
from penstock.core.settings import Settings
from penstock.log.event import Event
from penstock.sinks import Call
from penstock.sinks.background import flowing_beside
from tests.log.logs import eventually, opened, push
from tests.sinks.test_outlets import Remember


class Closed(Remember):
    """Takes nothing, ever."""

    name = "closed"

    def trouble(self, events: Sequence[Event]) -> Exception | None:
        return SinkClosed("nobody reads it")


def results(url: str, queue: str, condition: Any) -> None:
    """What a query does: it puts results into its queue; some more, when a condition holds."""

    async def made() -> None:
        async with opened(url) as log:
            await log.configure(queue)
            await push(log, range(3), queue=queue, key="a")
            await eventually(condition)
            await push(log, range(3, 6), queue=queue, key="a")

    asyncio.run(made())


def test_a_sink_that_hangs_in_a_call_does_not_hold_its_query(sinks_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called, over = threading.Event(), threading.Event()

    def hang(events: Any) -> None:
        called.set()
        over.wait()

    async def is_called() -> bool:
        return called.is_set()

    monkeypatch.setattr("penstock.sinks.runner._STOP_SECONDS", 0.1)
    monkeypatch.setattr("penstock.sinks.background._MOST_REST_SECONDS", 0.1)
    monkeypatch.setattr("penstock.sinks.background._MOST_WAIT_SECONDS", 1.0)
    stream = Stream.from_("orders").to("hung", Call(hang))
    try:
        with flowing_beside(stream, Settings(database_url=sinks_url)):
            results(sinks_url, "hung", is_called)
        assert any(thread.name == "penstock-sinks" for thread in threading.enumerate()), "it hangs still"
    finally:
        over.set()
    for thread in threading.enumerate():
        if thread.name == "penstock-sinks":
            thread.join()


def test_a_sink_that_has_ended_leaves_the_rest_to_the_others(sinks_url: str) -> None:
    closed, memory = Closed(), Remember()

    async def has_ended() -> bool:
        return "close" in closed.calls

    with flowing_beside(Stream.from_("orders").to("ended", closed, memory), Settings(database_url=sinks_url)):
        results(sinks_url, "ended", has_ended)

    assert [event.data for event in memory.got] == list(range(6))
