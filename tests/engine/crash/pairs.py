"""A left join for the crash tests: its input, and the pairs that it must emit."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from penstock import Stream, SyncPenstock
from tests.engine.crash.orders import eventually

QUERY = "pairs"
SINK = "pairs"
PARTITIONS = 2
SINK_PARTITIONS = 4
KEYS = 8
WITHIN_SECONDS = 3

_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
_STEP = timedelta(milliseconds=50)


def stream() -> Stream:
    rules: dict[str, Any] = {"event_time": "at", "idle_flush_seconds": 86_400, "allowed_lateness_seconds": 5}
    rights = Stream.from_("rights")
    joined = Stream.from_("lefts").join(rights, on="k", within=float(WITHIN_SECONDS), how="left", **rules)
    return joined.map("left.n AS l, right.n AS r").to(SINK)


class Sides:
    """Pushes to both queues, and keeps the pushed events."""

    def __init__(self, url: str, *, seed: int) -> None:
        self.pushed: dict[str, list[tuple[str, datetime, str]]] = {"lefts": [], "rights": []}
        self._chance = random.Random(seed)
        self._at = _BEGINNING
        self._client = SyncPenstock(url)

    def __enter__(self) -> Self:
        self._client.open()
        for queue, partitions in (("lefts", PARTITIONS), ("rights", PARTITIONS), (SINK, SINK_PARTITIONS)):
            self._client.queue(queue).create(partitioning="hash", partitions=partitions)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def push(self, events: int) -> None:
        """Events of both sides, a little out of order."""
        for queue, some in self.pushed.items():
            made = []
            for place in range(events):
                key = f"k{self._chance.randrange(KEYS)}"
                at = self._at + place * _STEP + timedelta(seconds=self._chance.random() * 2)
                some.append((key, at, f"{queue}-{len(some)}"))
                made.append({"key": key, "data": {"k": key, "at": at.isoformat(), "n": some[-1][2]}})
            self._client.queue(queue).push(made)
        self._at += events * _STEP

    def push_last_window(self) -> None:
        """Events in all partitions of both sides, so much later that nothing waits for what came before."""
        for queue in self.pushed:
            at = (self._at + timedelta(hours=1)).isoformat()
            some = [{"key": f"{i}", "data": {"k": f"end {queue} {i}", "at": at, "n": "end"}} for i in range(64)]
            self._client.queue(queue).push(some)

    def expected(self) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for key, at, name in self.pushed["lefts"]:
            reach = timedelta(seconds=WITHIN_SECONDS)
            rights: list[str | None] = [
                n for k, other, n in self.pushed["rights"] if k == key and abs(other - at) <= reach
            ]
            found.update((name, other) for other in rights or [None])
        return found

    def check(self) -> None:
        """Push the end, wait for as many pairs as there have to be, and compare them."""
        self.push_last_window()
        expected = self.expected()
        eventually(lambda: self._found().total() >= expected.total(), what=f"{expected.total()} pairs")
        assert self._found() == expected

    def _found(self) -> Counter[Any]:
        found: Counter[Any] = Counter()
        sink = self._client.queue(SINK)
        for partition in range(SINK_PARTITIONS):
            offset = 0
            while events := sink.fetch(str(partition), offset, 1000):
                offset += len(events)
                found.update((event.data["l"], event.data["r"]) for event in events)
        return found
