"""Several sinks in one process, and the sinks of a stream."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from penstock import Stream
from penstock.core.errors import Conflict, InvalidRequest
from penstock.log.log import Log
from penstock.sinks import File, Sinks
from penstock.stream.fingerprint import describe
from tests.conditions import eventually_async
from tests.log.logs import ask, push
from tests.sinks.memory_sink import MemorySink


def test_sinks_do_not_change_the_fingerprint_of_a_query() -> None:
    plain = Stream.from_("orders").filter("amount > 0").to("big")
    fanned = Stream.from_("orders").filter("amount > 0").to("big", MemorySink(), File("big.jsonl"))
    assert [binding.sink.name for binding in fanned.sink_bindings] == ["memory", "file:big.jsonl"]
    assert describe(fanned) == describe(plain)


def test_swapped_queue_and_sinks_are_refused() -> None:
    stream = Stream.from_("orders")
    with pytest.raises(InvalidRequest, match="in the wrong position"):
        stream.to(MemorySink())
    with pytest.raises(InvalidRequest, match="in the wrong position"):
        stream.to("big", "bigger")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="has no sinks"):
        Sinks("postgresql://nowhere").follow(stream.to("big"))


async def test_each_sink_reads_the_results_as_its_own_group(log: Log, queue: str, tmp_path: Path) -> None:
    memory, path = MemorySink(), tmp_path / "out.jsonl"
    stream = Stream.from_("orders").to(queue, memory, File(path))
    await push(log, range(5), queue=queue, key="a")

    await Sinks(log=log).follow(stream).run(idle_seconds=0.2)

    assert memory.data_of("a") == [json.loads(line) for line in path.read_text().splitlines()] == list(range(5))


@pytest.mark.slow
async def test_a_sink_waits_while_another_process_writes_its_file(
    log: Log, queue: str, sinks_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def is_shown_as_running() -> bool:
        return bool(ask(sinks_url, "SELECT running AND written = 1 FROM penstock.sinks WHERE queue = %s", queue))

    path = tmp_path / "out.jsonl"
    first, second = (Sinks(log=log).add(queue, File(path)) for _ in range(2))
    writing = asyncio.create_task(first.run())
    await push(log, [1], queue=queue, key="a")
    await eventually_async(lambda: _true(path.exists() and path.read_text() == "1\n"))
    waiting = asyncio.create_task(second.run())
    await eventually_async(lambda: _true(second.workers[0].is_standby and is_shown_as_running()))
    with pytest.raises(Conflict, match=r"another process writes out\.jsonl"):
        await Sinks(log=log).add(queue, File(path)).run(idle_seconds=0.1)
    assert is_shown_as_running()

    first.stop()
    await writing
    await push(log, [2], queue=queue, key="a")
    await eventually_async(lambda: _true(path.read_text() == "1\n2\n"))
    second.stop()
    await waiting
    assert [record.message for record in caplog.records if "this sink waits" in record.message] == [
        "file:out.jsonl: another process writes out.jsonl: stop it first; this sink waits until then"
    ] * 2


async def _true(fact: bool) -> bool:
    return fact
