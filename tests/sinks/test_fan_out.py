"""Streams whose results go to several sinks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock import Stream
from penstock.core.errors import Conflict, InvalidRequest, SinkBusy
from penstock.core.settings import Settings
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.sinks import File, Sinks
from penstock.sinks.background import flowing_beside
from penstock.stream.fingerprint import describe
from tests.log.logs import ask, eventually, opened, push
from tests.sinks.test_outlets import Remember


def test_sinks_are_no_part_of_what_the_query_is() -> None:
    plain = Stream.from_("orders").filter("amount > 0").to("big")
    fanned = Stream.from_("orders").filter("amount > 0").to("big", Remember(), File("big.jsonl"))
    assert [flow.sink.name for flow in fanned.outlets] == ["remember", "file:big.jsonl"]
    assert describe(fanned) == describe(plain)


def test_a_queue_and_sinks_are_not_confused() -> None:
    stream = Stream.from_("orders")
    with pytest.raises(InvalidRequest, match="other's place"):
        stream.to(Remember())
    with pytest.raises(InvalidRequest, match="other's place"):
        stream.to("big", "bigger")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="names no sinks"):
        Sinks("postgresql://nowhere").follow(stream.to("big"))


async def test_each_sink_reads_the_results_as_a_group_of_its_own(log: Log, queue: str, tmp_path: Path) -> None:
    memory, path = Remember(), tmp_path / "out.jsonl"
    stream = Stream.from_("orders").to(queue, memory, File(path))
    await push(log, range(5), queue=queue, key="a")

    await Sinks(log=log).follow(stream).run(idle_seconds=0.2)

    assert memory.of("a") == [json.loads(line) for line in path.read_text().splitlines()] == list(range(5))


def test_sinks_flow_beside_the_queries_and_are_written_to_the_end(sinks_url: str, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    stream = Stream.from_("orders").to("made-later", File(path))

    async def results() -> None:
        # The query's part: it makes the queue, and puts results into it.
        async with opened(sinks_url) as log:
            await log.configure("made-later")
            await push(log, range(2000), queue="made-later", key="a")

    with flowing_beside(stream, Settings(database_url=sinks_url)):
        asyncio.run(results())

    assert [json.loads(line) for line in path.read_text().splitlines()] == list(range(2000))


def test_a_sink_that_takes_nothing_does_not_keep_a_query_from_ending(
    sinks_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Never(Remember):
        def trouble(self, events: Sequence[Event]) -> Exception | None:
            return SinkBusy("not now", retry_after=3600)

    monkeypatch.setattr("penstock.sinks.background._MOST_REST_SECONDS", 0.5)
    never = Never()

    async def results() -> int:
        async with opened(sinks_url) as log:
            await log.configure("never-taken")
            await push(log, range(3), queue="never-taken", key="a")
            await eventually(lambda: tried(never))
            return (await log.describe("never-taken")).groups[0].lag

    async def tried(sink: Never) -> bool:
        return sink.tries > 0

    with flowing_beside(Stream.from_("orders").to("never-taken", never), Settings(database_url=sinks_url)):
        lag = asyncio.run(results())

    assert lag == 3, "it goes on there, the next time"


def test_sinks_end_with_queries_that_never_came_to_anything(sinks_url: str, tmp_path: Path) -> None:
    stream = Stream.from_("orders").to("never-made", File(tmp_path / "out.jsonl"))
    with (
        pytest.raises(RuntimeError, match="no Spark"),
        flowing_beside(stream, Settings(database_url=sinks_url)),
    ):
        raise RuntimeError("no Spark")


async def test_a_sink_stands_by_while_another_process_writes_its_file(
    log: Log, queue: str, sinks_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def is_said_to_run() -> bool:
        return bool(ask(sinks_url, "SELECT running AND written = 1 FROM penstock.sinks WHERE queue = %s", queue))

    path = tmp_path / "out.jsonl"
    first, second = (Sinks(log=log).add(queue, File(path)) for _ in range(2))
    writing = asyncio.create_task(first.run())
    await push(log, [1], queue=queue, key="a")
    await eventually(lambda: _true(path.exists() and path.read_text() == "1\n"))
    waiting = asyncio.create_task(second.run())
    await eventually(lambda: _true(second.outlets[0].stands_by and is_said_to_run()))
    with pytest.raises(Conflict, match=r"another process writes out\.jsonl"):
        await Sinks(log=log).add(queue, File(path)).run(idle_seconds=0.1)
    assert is_said_to_run()

    first.stop()
    await writing
    await push(log, [2], queue=queue, key="a")
    await eventually(lambda: _true(path.read_text() == "1\n2\n"))
    second.stop()
    await waiting
    assert [record.message for record in caplog.records if "stands by" in record.message] == [
        "file:out.jsonl: another process writes out.jsonl: stop it first; until then this one stands by"
    ] * 2


async def _true(fact: bool) -> bool:
    return fact
