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
from penstock.log.write.batch import Batch
from tests.cli.command_line import Arrange, CommandLine

WAIT = 30.0


@pytest.fixture(autouse=True)
def orders(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")


class Following:
    """A ``tail --follow`` in another process, and what it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def next(self, count: int) -> list[Any]:
        """The next events it prints."""
        return [json.loads(self._lines.get(timeout=WAIT)) for _ in range(count)]

    def rest(self) -> list[str]:
        """Stop it, and return what else it printed."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(WAIT) == 130
        rest = []
        while not self._lines.empty():
            rest.append(self._lines.get())
        return rest


@contextmanager
def following(cli: CommandLine, *arguments: str) -> Iterator[Following]:
    with cli.start("queue", "tail", "orders", "--follow", "--json", *arguments) as process:
        try:
            yield Following(process)
        finally:
            process.kill()


def places(events: list[Any]) -> list[tuple[str, int]]:
    return [(event["partition"], event["offset"]) for event in events]


def test_the_newest_are_shown_oldest_first(cli: CommandLine) -> None:
    for n in range(5):
        cli.ok("queue", "push", "orders", str(n), "--key", f"k{n % 2}")
    assert [event["data"] for event in cli.json_lines("queue", "tail", "orders", "-n", "3")] == [2, 3, 4]
    assert cli.ok("queue", "tail", "orders", "-n", "0") == ""
    *_, last = cli.ok("queue", "tail", "orders").splitlines()
    assert last.split("  ")[1:] == ["k0/2", "4"]


def test_one_key_alone_can_be_shown(cli: CommandLine) -> None:
    cli.ok("queue", "create", "clicks", "--partitions", "2")
    for name in ("orders", "clicks"):
        for n in range(6):
            cli.ok("queue", "push", name, str(n), "--key", f"k{n % 3}")
        assert [event["data"] for event in cli.json_lines("queue", "tail", name, "--key", "k1")] == [1, 4]


def test_looking_is_not_consuming(cli: CommandLine, arrange: Arrange) -> None:
    cli.ok("queue", "push", "orders", "1")
    arrange(lambda log: log.subscribe("orders", "billing"))
    cli.ok("queue", "tail", "orders")
    assert [(group["group"], group["lag"]) for group in cli.json("group", "list")] == [("billing", 1)]


def test_control_characters_do_nothing_to_a_terminal(cli: CommandLine) -> None:
    cli.ok("queue", "push", "orders", "1", "--key", "\x1b[31mred")
    assert "\x1b" not in cli.ok("queue", "tail", "orders")
    assert cli.json_lines("queue", "tail", "orders")[0]["key"] == "\x1b[31mred"


def test_follow_shows_what_another_process_pushes(cli: CommandLine) -> None:
    cli.ok("queue", "push", "orders", "0", "--key", "old")
    with following(cli) as tail:
        assert places(tail.next(1)) == [("old", 0)]
        cli.ok("queue", "push", "orders", "1", "2", "--key", "new")
        cli.ok("queue", "push", "orders", "3", "--key", "old")
        assert places(tail.next(3)) == [("new", 0), ("new", 1), ("old", 1)]
        assert tail.rest() == []


def test_follow_can_begin_with_nothing_and_keep_to_a_key(cli: CommandLine, arrange: Arrange) -> None:
    cli.ok("queue", "push", "orders", "0", "--key", "mine")
    with following(cli, "-n", "0", "--key", "mine") as tail:
        seen: list[Any] = []

        async def push_until_seen(log: Log) -> None:
            # When it has begun to look is not known: pushed until the first one is shown.
            waiting = asyncio.create_task(asyncio.to_thread(tail.next, 1))
            while not waiting.done():
                await log.push([Batch("orders", [{"data": 1, "key": "mine"}, {"data": 1, "key": "other"}])])
                await asyncio.wait([waiting], timeout=0.1)
            seen.extend(waiting.result())

        arrange(push_until_seen)
        assert seen[0]["offset"] > 0
        assert all('"key":"mine"' in line for line in tail.rest())


@pytest.mark.slow
def test_nothing_is_missing_or_shown_twice_however_busy_the_queue_is(cli: CommandLine, arrange: Arrange) -> None:
    count = 3_000

    async def push_from_many_sides(log: Log) -> None:
        async def push(side: int) -> None:
            for n in range(0, count, 6):
                batch = [{"data": n + i, "key": f"{side}-{(n + i) % 7}"} for i in range(6)]
                await log.push([Batch("orders", batch)])
                if n == count // 2 and side == 0:
                    await log.segments.roll(await log.catalog.refresh("orders"))

        await asyncio.gather(*(push(side) for side in range(4)))

    with following(cli, "-n", "1000000") as tail:
        arrange(push_from_many_sides)
        found = places(tail.next(4 * count))
        assert tail.rest() == []
    lanes: dict[str, list[int]] = {}
    for partition, offset in found:
        lanes.setdefault(partition, []).append(offset)
    assert len(lanes) == 28
    for offsets in lanes.values():
        assert offsets == list(range(len(offsets)))


def test_follow_goes_on_over_a_repartitioning(cli: CommandLine) -> None:
    cli.ok("queue", "create", "clicks", "--partitions", "2")
    with cli.start("queue", "tail", "clicks", "--follow", "--json") as process:
        try:
            tail = Following(process)
            cli.ok("queue", "push", "clicks", *map(str, range(10)))
            assert {event["data"] for event in tail.next(10)} == set(range(10))
            cli.ok("queue", "push", "clicks", *map(str, range(10, 20)))
            cli.ok("queue", "repartition", "clicks", "--partitions", "3")
            cli.ok("queue", "push", "clicks", *map(str, range(20, 30)))
            assert {event["data"] for event in tail.next(20)} == set(range(10, 30))
            assert tail.rest() == []
        finally:
            process.kill()


def test_follow_ends_when_the_queue_is_gone(cli: CommandLine) -> None:
    cli.ok("queue", "push", "orders", "0")
    with following(cli) as tail:
        tail.next(1)
        cli.ok("queue", "delete", "orders", "--yes")
        assert tail.process.wait(WAIT) == 3
        assert tail.process.stderr is not None
        assert tail.process.stderr.read().startswith("error: there is no queue 'orders'")


def test_a_reader_that_has_seen_enough_is_no_error(cli: CommandLine) -> None:
    cli.ok("queue", "push", "orders", input="\n".join(map(str, range(20_000))))
    with cli.start("queue", "tail", "orders", "-n", "20000", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(WAIT) == 0
        assert process.stderr.read() == ""
