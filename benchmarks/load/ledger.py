"""The oracle: what was pushed and when, against which everything that is read is held.

Order is judged by the clock of the load generator. Where one push was answered before another began, its events come
first under every key that both have; within a push, the order is that of the list. Pushes that overlapped may have gone
in either way round.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from benchmarks.load.events import EPOCH, Generator, Made

_UNANSWERED = float("inf")


class Ledger:
    """Everything that was pushed to one queue, in batches of one size."""

    def __init__(self, generator: Generator, batch: int) -> None:
        self.generator = generator
        self.batch = batch
        self.users: list[str] = []
        self.ids: list[str] = []
        self.amounts = array("q")
        self.started = array("d")
        self.answered = array("d")

    def __len__(self) -> int:
        return len(self.users)

    def make(self, batches: int) -> list[Made]:
        """Create batches, which count as pushed from now on."""
        first, data, ids = self.generator.make(batches * self.batch)
        self.users += [event["user"] for event in data]
        self.amounts.extend([event["amount"] for event in data])
        self.ids += ids
        self.started.extend([_UNANSWERED] * batches)
        self.answered.extend([_UNANSWERED] * batches)
        size = self.batch
        return [Made(first + i, data[i : i + size], ids[i : i + size]) for i in range(0, len(data), size)]


class Reading:
    """The events that one reader got from a ledger's queue, in order."""

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
        """Note events by their ``ts``, in the order of reading; amounts and ids are held against the ledger."""
        ledger = self.ledger
        numbers = [stamp - EPOCH for stamp in stamps]
        if not numbers:
            return
        if not self._expect(0 <= min(numbers) <= max(numbers) < len(ledger), "events were read that nobody pushed"):
            return
        before = len(self._seen)
        self._seen.update(numbers)
        self.events += len(numbers)
        self._expect(len(self._seen) == before + len(numbers), "events were read twice")
        if amounts is not None:
            self._expect(amounts == [ledger.amounts[n] for n in numbers], "amounts are not those that were pushed")
        if ids is not None:
            self._expect(ids == [ledger.ids[n] for n in numbers], "ids are not those that were pushed")
        if self._in_order:
            self._check_order(numbers)

    def finish(self) -> list[str]:
        """The problems, if everything that was pushed was to be read by now."""
        ledger, pushed = self.ledger, len(self.ledger)
        self._expect(self.events == pushed, f"{pushed} events were pushed and {self.events} read")
        total, read = sum(ledger.amounts), sum([ledger.amounts[n] for n in self._seen])
        self._expect(read == total, f"the amounts pushed sum up to {total} and those read to {read}")
        self._expect(len(set(ledger.ids)) == pushed, "the load generator made an id twice")
        return self.problems

    def _check_order(self, numbers: Sequence[int]) -> None:
        users, size = self.ledger.users, self.ledger.batch
        started, answered = self.ledger.started, self.ledger.answered
        last, latest_start = self._last, self._latest_start
        for number in numbers:
            user, batch = users[number], number // size
            before = last.get(user, -1)
            last[user] = number
            if before // size == batch:
                self._expect(before < number, f"events of {user} that were pushed together were read out of order")
                continue
            latest = latest_start.get(user, 0.0)
            if answered[batch] < latest:
                self._expect(False, f"events of {user} were read before others that had been pushed earlier")
            if started[batch] > latest:
                latest_start[user] = started[batch]

    def _expect(self, holds: bool, otherwise: str) -> bool:
        if not holds and otherwise not in self.problems and len(self.problems) < 10:
            self.problems.append(otherwise)
        return holds
