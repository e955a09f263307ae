from __future__ import annotations

import asyncio
import json
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from tests.cli.command_line import Arrange, CommandLine

pytestmark = pytest.mark.slow

WAIT = 30.0


@pytest.fixture(autouse=True)
def orders(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")


class TailProcess:
    """A ``tail --follow`` in a child process, and its output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def next(self, count: int) -> list[Any]:
        """Return the next ``count`` events that it prints."""
        return [json.loads(self._lines.get(timeout=WAIT)) for _ in range(count)]

    def stop(self) -> list[str]:
        """Stop the process, and return the rest of its output."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(WAIT) == 130
        rest = []
        while not self._lines.empty():
            rest.append(self._lines.get())
        return rest


@contextmanager
def follow_orders(cli: CommandLine, *arguments: str) -> Iterator[TailProcess]:
    with cli.start("queue", "tail", "orders", "--follow", "--json", *arguments) as process:
        try:
            yield TailProcess(process)
        finally:
            process.kill()


def positions(events: list[Any]) -> list[tuple[str, int]]:
    return [(event["partition"], event["offset"]) for event in events]


def test_tail_prints_the_newest_events_oldest_first(cli: CommandLine) -> None:
    for n in range(5):
        cli.ok("queue", "push", "orders", str(n), "--key", f"k{n % 2}")
    assert [event["data"] for event in cli.json_lines("queue", "tail", "orders", "-n", "3")] == [2, 3, 4]
    assert cli.ok("queue", "tail", "orders", "-n", "0") == ""
    *_, last = cli.ok("queue", "tail", "orders").splitlines()
    assert last.split("  ")[1:] == ["k0/2", "4"]


def test_tail_filters_by_key(cli: CommandLine) -> None:
    cli.ok("queue", "create", "clicks", "--partitions", "2")
    for name in ("orders", "clicks"):
        for n in range(6):
            cli.ok("queue", "push", name, str(n), "--key", f"k{n % 3}")
        assert [event["data"] for event in cli.json_lines("queue", "tail", name, "--key", "k1")] == [1, 4]


def test_tail_does_not_consume(cli: CommandLine, arrange: Arrange) -> None:
    cli.ok("queue", "push", "orders", "1")
    arrange(lambda log: log.subscribe("orders", "billing"))
    cli.ok("queue", "tail", "orders")
    assert [(group["group"], group["lag"]) for group in cli.json("group", "list")] == [("billing", 1)]


def test_control_characters_are_escaped(cli: CommandLine) -> None:
    cli.ok("queue", "push", "orders", "1", "--key", "\x1b[31mred")
    assert "\x1b" not in cli.ok("queue", "tail", "orders")
    assert cli.json_lines("queue", "tail", "orders")[0]["key"] == "\x1b[31mred"


def test_follow_prints_events_of_another_process(cli: CommandLine) -> None:
    cli.ok("queue", "push", "orders", "0", "--key", "old")
    with follow_orders(cli) as tail:
        assert positions(tail.next(1)) == [("old", 0)]
        cli.ok("queue", "push", "orders", "1", "2", "--key", "new")
        cli.ok("queue", "push", "orders", "3", "--key", "old")
        assert positions(tail.next(3)) == [("new", 0), ("new", 1), ("old", 1)]
        assert tail.stop() == []


def test_follow_without_earlier_events_filters_by_key(cli: CommandLine, arrange: Arrange) -> None:
    cli.ok("queue", "push", "orders", "0", "--key", "mine")
    with follow_orders(cli, "-n", "0", "--key", "mine") as tail:
        seen: list[Any] = []

        async def push_until_seen(log: Log) -> None:
            # The test cannot see when the process starts to follow, so it pushes until the first event is printed.
            waiting = asyncio.create_task(asyncio.to_thread(tail.next, 1))
            while not waiting.done():
                await log.push([Batch("orders", [{"data": 1, "key": "mine"}, {"data": 1, "key": "other"}])])
                await asyncio.wait([waiting], timeout=0.1)
            seen.extend(waiting.result())

        arrange(push_until_seen)
        assert seen[0]["offset"] > 0
        assert all('"key":"mine"' in line for line in tail.stop())


@pytest.mark.slow
def test_follow_prints_every_event_of_a_busy_queue_once(cli: CommandLine, arrange: Arrange) -> None:
    count = 3_000

    async def push_concurrently(log: Log) -> None:
        async def push(producer: int) -> None:
            for n in range(0, count, 6):
                batch = [{"data": n + i, "key": f"{producer}-{(n + i) % 7}"} for i in range(6)]
                await log.push([Batch("orders", batch)])
                if n == count // 2 and producer == 0:
                    await log.segments.roll(await log.catalog.refresh("orders"))

        await asyncio.gather(*(push(producer) for producer in range(4)))

    with follow_orders(cli, "-n", "1000000") as tail:
        arrange(push_concurrently)
        printed = positions(tail.next(4 * count))
        assert tail.stop() == []
    partitions: dict[str, list[int]] = {}
    for partition, offset in printed:
        partitions.setdefault(partition, []).append(offset)
    assert len(partitions) == 28
    for offsets in partitions.values():
        assert offsets == list(range(len(offsets)))


def test_follow_continues_after_repartitioning(cli: CommandLine) -> None:
    cli.ok("queue", "create", "clicks", "--partitions", "2")
    with cli.start("queue", "tail", "clicks", "--follow", "--json") as process:
        try:
            tail = TailProcess(process)
            cli.ok("queue", "push", "clicks", *map(str, range(10)))
            assert {event["data"] for event in tail.next(10)} == set(range(10))
            cli.ok("queue", "push", "clicks", *map(str, range(10, 20)))
            cli.ok("queue", "repartition", "clicks", "--partitions", "3")
            cli.ok("queue", "push", "clicks", *map(str, range(20, 30)))
            assert {event["data"] for event in tail.next(20)} == set(range(10, 30))
            assert tail.stop() == []
        finally:
            process.kill()


def test_follow_exits_when_the_queue_is_deleted(cli: CommandLine) -> None:
    cli.ok("queue", "push", "orders", "0")
    with follow_orders(cli) as tail:
        tail.next(1)
        cli.ok("queue", "delete", "orders", "--yes")
        assert tail.process.wait(WAIT) == 3
        assert tail.process.stderr is not None
        assert tail.process.stderr.read().startswith("error: there is no queue 'orders'")


def test_closed_pipe_is_not_an_error(cli: CommandLine) -> None:
    cli.ok("queue", "push", "orders", input="\n".join(map(str, range(20_000))))
    with cli.start("queue", "tail", "orders", "-n", "20000", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(WAIT) == 0
        assert process.stderr.read() == ""
