"""Sinks in the background of a query: a failing sink delays neither the query nor the other sinks."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import Stream
from penstock.core.errors import SinkBusy, SinkClosed
from penstock.core.settings import Settings
from penstock.log.event import Event
from penstock.sinks import Call, File
from penstock.sinks.delivery.stop_timeouts import StopTimes
from penstock.sinks.delivery.stream_sinks import run_sinks_in_background
from tests.conditions import eventually_async
from tests.log.logs import opened, push
from tests.sinks.memory_sink import MemorySink


class ClosedSink(MemorySink):
    """Always raises SinkClosed."""

    name = "closed"

    def next_error(self, events: Sequence[Event]) -> Exception | None:
        return SinkClosed("nobody reads it")


def push_results(url: str, queue: str, condition: Any) -> None:
    """Push results like a query: three events, and three more when a condition holds."""

    async def push_all() -> None:
        async with opened(url) as log:
            await log.configure(queue)
            await push(log, range(3), queue=queue, key="a")
            await eventually_async(condition)
            await push(log, range(3, 6), queue=queue, key="a")

    asyncio.run(push_all())


@pytest.mark.slow
def test_a_sink_that_hangs_in_a_call_does_not_delay_its_query(sinks_url: str) -> None:
    called, over = threading.Event(), threading.Event()

    def hang(events: Any) -> None:
        called.set()
        over.wait()

    async def is_called() -> bool:
        return called.is_set()

    stream = Stream.from_("orders").to("hung", Call(hang))
    try:
        with run_sinks_in_background(
            stream, Settings(database_url=sinks_url), StopTimes(drain=0.1, stop=0.1, total=1.0)
        ):
            push_results(sinks_url, "hung", is_called)
        assert any(thread.name == "penstock-sinks" for thread in threading.enumerate()), "the thread must still hang"
    finally:
        over.set()
    for thread in threading.enumerate():
        if thread.name == "penstock-sinks":
            thread.join()


def test_a_closed_sink_does_not_stop_the_other_sinks(sinks_url: str) -> None:
    closed, memory = ClosedSink(), MemorySink()

    async def has_ended() -> bool:
        return "close" in closed.calls

    with run_sinks_in_background(Stream.from_("orders").to("ended", closed, memory), Settings(database_url=sinks_url)):
        push_results(sinks_url, "ended", has_ended)

    assert [event.data for event in memory.received] == list(range(6))


def test_background_sinks_write_all_results(sinks_url: str, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    stream = Stream.from_("orders").to("made-later", File(path))

    async def results() -> None:
        async with opened(sinks_url) as log:
            await log.configure("made-later")
            await push(log, range(2000), queue="made-later", key="a")

    with run_sinks_in_background(stream, Settings(database_url=sinks_url)):
        asyncio.run(results())

    assert [json.loads(line) for line in path.read_text().splitlines()] == list(range(2000))


def test_a_busy_sink_does_not_delay_the_end_of_a_query(sinks_url: str) -> None:
    class Never(MemorySink):
        def next_error(self, events: Sequence[Event]) -> Exception | None:
            return SinkBusy("not now", retry_after=3600)

    never = Never()

    async def results() -> int:
        async with opened(sinks_url) as log:
            await log.configure("never-taken")
            await push(log, range(3), queue="never-taken", key="a")
            await eventually_async(lambda: tried(never))
            return (await log.describe("never-taken")).groups[0].lag

    async def tried(sink: Never) -> bool:
        return sink.attempts > 0

    stream = Stream.from_("orders").to("never-taken", never)
    with run_sinks_in_background(stream, Settings(database_url=sinks_url), StopTimes(drain=0.5)):
        lag = asyncio.run(results())

    assert lag == 3, "the events stay in the queue"


def test_background_sinks_end_if_the_query_fails_before_its_queue_exists(sinks_url: str, tmp_path: Path) -> None:
    stream = Stream.from_("orders").to("never-made", File(tmp_path / "out.jsonl"))
    with (
        pytest.raises(RuntimeError, match="no Spark"),
        run_sinks_in_background(stream, Settings(database_url=sinks_url)),
    ):
        raise RuntimeError("no Spark")
