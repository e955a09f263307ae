"""Ledger of the pushed events, and the check of read events against it.

The expected order follows the clock of the load generator. If a push completed before another started, its events come
first for every key in both. Within a push, the order is that of the list. Overlapping pushes may be stored in either
order.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from benchmarks.load.events import EPOCH, EventBatch, Generator

_NOT_COMPLETED = float("inf")


class Ledger:
    """The events pushed to one queue, in batches of one size, with the start and end time of each push."""

    def __init__(self, generator: Generator, batch: int) -> None:
        self.generator = generator
        self.batch = batch
        self.users: list[str] = []
        self.ids: list[str] = []
        self.amounts = array("q")
        self.started = array("d")
        self.completed = array("d")

    def __len__(self) -> int:
        return len(self.users)

    def generate(self, batches: int) -> list[EventBatch]:
        """Generate batches and record them as pushed."""
        first, data, ids = self.generator.generate(batches * self.batch)
        self.users += [event["user"] for event in data]
        self.amounts.extend([event["amount"] for event in data])
        self.ids += ids
        self.started.extend([_NOT_COMPLETED] * batches)
        self.completed.extend([_NOT_COMPLETED] * batches)
        size = self.batch
        return [EventBatch(first + i, data[i : i + size], ids[i : i + size]) for i in range(0, len(data), size)]


class Reading:
    """Checks the events that one reader received from a queue, in order."""

    def __init__(self, ledger: Ledger, *, in_order: bool = True) -> None:
        self.ledger = ledger
        self.problems: list[str] = []
        self.events = 0
        self._in_order = in_order
        self._seen: set[int] = set()
        self._last: dict[str, int] = {}
        self._latest_start: dict[str, float] = {}

    def add(
        self, stamps: Sequence[int], amounts: Sequence[int] | None = None, ids: Sequence[str] | None = None
    ) -> None:
        """Add events by their ``ts``, in the order of reading. Amounts and ids are compared with the ledger."""
        ledger = self.ledger
        numbers = [stamp - EPOCH for stamp in stamps]
        if not numbers:
            return
        if not self._expect(0 <= min(numbers) <= max(numbers) < len(ledger), "events were read that were not pushed"):
            return
        before = len(self._seen)
        self._seen.update(numbers)
        self.events += len(numbers)
        self._expect(len(self._seen) == before + len(numbers), "events were read twice")
        if amounts is not None:
            self._expect(amounts == [ledger.amounts[n] for n in numbers], "amounts differ from the pushed ones")
        if ids is not None:
            self._expect(ids == [ledger.ids[n] for n in numbers], "ids differ from the pushed ones")
        if self._in_order:
            self._check_order(numbers)

    def finish(self) -> list[str]:
        """Return the problems, assuming that all pushed events have been read."""
        ledger, pushed = self.ledger, len(self.ledger)
        self._expect(self.events == pushed, f"{pushed} events were pushed and {self.events} read")
        total, read = sum(ledger.amounts), sum([ledger.amounts[n] for n in self._seen])
        self._expect(read == total, f"the sum of the pushed amounts is {total}, that of the read ones {read}")
        self._expect(len(set(ledger.ids)) == pushed, "the load generator generated an id twice")
        return self.problems

    def _check_order(self, numbers: Sequence[int]) -> None:
        users, size = self.ledger.users, self.ledger.batch
        started, completed = self.ledger.started, self.ledger.completed
        last, latest_start = self._last, self._latest_start
        for number in numbers:
            user, batch = users[number], number // size
            before = last.get(user, -1)
            last[user] = number
            if before // size == batch:
                self._expect(before < number, f"events of {user} in one push were read out of order")
                continue
            latest = latest_start.get(user, 0.0)
            if completed[batch] < latest:
                self._expect(False, f"events of {user} were read before events of an earlier push")
            if started[batch] > latest:
                latest_start[user] = started[batch]

    def _expect(self, holds: bool, problem: str) -> bool:
        if not holds and problem not in self.problems and len(self.problems) < 10:
            self.problems.append(problem)
        return holds
