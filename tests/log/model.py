"""A model of the log in plain Python: what a push stores, what a pop may deliver, how an ack changes a position.

It shares only the names of partitions with the code under test. Time is a number of seconds that the test advances in
steps of 100, while all durations are odd multiples of 50. So the time that the test itself takes does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["completed", "failed", "retry", "dead_letter"]

#: The outcome of one ack.
Outcome = Literal["taken", "dead", "noop", "committed", "late", "held back"]

LEASE = 250
RETRY_DELAY = 150


@dataclass
class Letter:
    """A dead letter. It is ``waiting`` until it is redriven."""

    group: str
    data: int
    key: str
    waiting: bool = True
    redrives: int = 0
    falls: int = 1


@dataclass
class Stored:
    """A stored event of a partition."""

    data: int
    key: str
    id: str | None
    at: int
    #: The dead letter of a redriven event, which only its group receives.
    letter: Letter | None = None

    def is_for(self, group: str) -> bool:
        return self.letter is None or self.letter.group == group


@dataclass
class PartitionModel:
    epoch: int
    name: str
    events: list[Stored] = field(default_factory=list)


@dataclass
class PositionModel:
    """The position of a group in a partition."""

    next: int = 0
    lease: str | None = None
    lease_end: int = 0
    until: int = 0
    ready_at: int = 0
    failures: Counter[int] = field(default_factory=Counter)
    skipped: set[int] = field(default_factory=set)


@dataclass
class Model:
    """One queue."""

    place: Callable[[str], str]
    retry_limit: int
    delay: int
    window: int
    max_redrives: int
    now: int = 0
    epoch: int = 0
    partitions: dict[tuple[int, str], PartitionModel] = field(default_factory=dict)
    groups: dict[str, dict[tuple[int, str], PositionModel]] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)

    # Pushing

    def partition(self, name: str) -> PartitionModel:
        """Return the partition of that name in the current epoch. It is created on first use."""
        return self.partitions.setdefault((self.epoch, name), PartitionModel(self.epoch, name))

    def push(self, events: Sequence[tuple[int, str, str | None]], results: Sequence[tuple[str, int, bool]]) -> None:
        """Store the events of a push (data, key, id), and check the locations that the log has returned.

        New events follow the last one of their partition without a gap, in the order of the push per key. An id is
        stored once for its key within the window, and its repetitions have the location of the stored event.
        """
        new: dict[tuple[int, str], dict[int, Stored]] = {}
        last: dict[str, int] = {}
        first: dict[tuple[str, str], tuple[str, int]] = {}
        for (data, key, id), (name, offset, is_duplicate) in zip(events, results, strict=True):
            partition = self.partition(self.place(key))
            if not is_duplicate:
                assert partition.name == name
                assert self._seen(key, id) is None, f"the id {id} is stored already, at {self._seen(key, id)}"
                new.setdefault((partition.epoch, partition.name), {})[offset] = Stored(data, key, id, self.now)
                assert offset > last.get(key, -1), f"the events of {key} are not in the order of the push"
                last[key] = offset
                if id is not None and self.window:
                    assert (key, id) not in first, f"the id {id} was stored twice"
                    first[key, id] = (name, offset)
        for (_, key, id), (name, offset, is_duplicate) in zip(events, results, strict=True):
            if is_duplicate:
                assert id is not None
                assert (name, offset) in (self._seen(key, id), first.get((key, id))), f"the id {id} is not at {offset}"
        for where, by_offset in new.items():
            stored = self.partitions[where].events
            assert sorted(by_offset) == list(range(len(stored), len(stored) + len(by_offset))), "there is a gap"
            stored += [by_offset[offset] for offset in sorted(by_offset)]

    def _seen(self, key: str, id: str | None) -> tuple[str, int] | None:
        """Return the location of the newest event with that key and id within the window, in any epoch."""
        for partition in sorted(self.partitions.values(), key=lambda partition: -partition.epoch):
            for offset in reversed(range(len(partition.events))):
                seen = partition.events[offset]
                if id is None or (seen.key, seen.id) != (key, id) or seen.letter is not None:
                    continue
                if self.now - seen.at < self.window:
                    return partition.name, offset
        return None

    # Groups

    def subscribe(self, group: str, at_end: bool) -> None:
        positions = self.groups.setdefault(group, {})
        for where, partition in self.partitions.items():
            positions[where] = PositionModel(len(partition.events) if at_end else 0)

    def position(self, group: str, partition: PartitionModel) -> PositionModel:
        return self.groups[group].setdefault((partition.epoch, partition.name), PositionModel())

    def positions(self, group: str) -> Iterator[tuple[PartitionModel, PositionModel]]:
        for partition in self.partitions.values():
            yield partition, self.position(group, partition)

    def unread(self, group: str, partition: PartitionModel) -> list[int]:
        """Return the events of a partition that the group has not completed, due or not."""
        at = self.position(group, partition)
        return [
            o
            for o in range(at.next, len(partition.events))
            if o not in at.skipped and partition.events[o].is_for(group)
        ]

    def lag(self, group: str) -> tuple[int, int]:
        """Return the least and the greatest lag that the log may report.

        Events for another group count until the group pops past them.
        """
        least = most = 0
        for partition, at in self.positions(group):
            most += len(partition.events) - at.next
            unread = self.unread(group, partition)
            least += len(partition.events) - unread[0] if unread else 0
        return least, most

    def seek(self, group: str, target: Callable[[PartitionModel], int], name: str | None) -> int:
        moved = 0
        for partition, at in self.positions(group):
            if name in (None, partition.name):
                at.next = max(0, min(target(partition), len(partition.events)))
                at.lease, at.ready_at = None, 0
                at.failures.clear()
                at.skipped.clear()
                moved += 1
        return moved

    # Popping

    def deliverable(self, group: str, partition: PartitionModel) -> list[int]:
        """Return the events of a partition that a pop may deliver now, in this order."""
        at = self.position(group, partition)
        if (at.lease is not None and self.now < at.until) or self.now < at.ready_at:
            return []
        if any(self.unread(group, other) for other in self.partitions.values() if other.epoch < partition.epoch):
            return []
        due: list[int] = []
        for offset in self.unread(group, partition):
            if partition.events[offset].at + self.delay > self.now:
                break
            due.append(offset)
        return due

    def delivered(self, group: str, partition: PartitionModel, offsets: Sequence[int], lease: str | None) -> None:
        at = self.position(group, partition)
        at.lease, at.lease_end, at.until = lease, offsets[-1] + 1, self.now + LEASE

    def extend(self, group: str, partition: PartitionModel, lease: str | None, seconds: int) -> bool:
        at = self.position(group, partition)
        if at.lease != lease or self.now >= at.until:
            return False
        at.until = max(at.until, self.now + seconds)
        return True

    # Acknowledging

    def ack(
        self, group: str, partition: PartitionModel, lease: str | None, acks: Iterable[tuple[int, Status]]
    ) -> dict[int, Outcome]:
        """Apply acks and return their outcomes."""
        at = self.position(group, partition)
        outcomes: dict[int, Outcome] = {}
        if at.lease != lease or self.now >= at.until:
            for offset, status in acks:
                is_behind = offset < at.next
                outcomes[offset] = "late" if not is_behind else "noop" if status == "completed" else "committed"
            return outcomes
        begin, already_skipped = at.next, set(at.skipped)
        held: Status | None = None
        for offset, status in sorted(acks):
            if offset < begin or offset in already_skipped:
                outcomes[offset] = "noop" if status == "completed" else "committed"
            elif held is not None:
                outcomes[offset] = "held back"
            elif status == "completed":
                at.next = offset + 1
                outcomes[offset] = "taken"
            elif status == "dead_letter" or (status == "failed" and at.failures[offset] >= self.retry_limit):
                self.add_dead_letter(group, partition.events[offset])
                at.skipped.add(offset)
                outcomes[offset] = "dead"
            else:
                held = status
                at.failures[offset] += status == "failed"
                outcomes[offset] = "taken"
            while at.next in at.skipped:
                at.skipped.remove(at.next)
                at.next += 1
        at.skipped = {offset for offset in at.skipped if offset >= at.next}
        if held is not None or at.next >= at.lease_end:
            at.lease = None
            at.ready_at = self.now + RETRY_DELAY if held == "failed" else 0
        return outcomes

    # Dead letters

    def add_dead_letter(self, group: str, event: Stored) -> None:
        letter = event.letter
        if letter is not None and not letter.waiting:
            letter.waiting, letter.falls = True, letter.falls + 1
        else:
            self.letters.append(Letter(group, event.data, event.key))

    def redrive(self, group: str | None, limit: int) -> tuple[int, int]:
        """Redrive the oldest dead letters. Return how many were redriven, and how many were not."""
        chosen = [letter for letter in self.letters if letter.waiting and group in (None, letter.group)][:limit]
        replayed = 0
        for letter in chosen:
            if letter.redrives < self.max_redrives:
                letter.waiting, letter.redrives, replayed = False, letter.redrives + 1, replayed + 1
                self.partition(self.place(letter.key)).events.append(
                    Stored(letter.data, letter.key, None, self.now, letter)
                )
        return replayed, len(chosen) - replayed

    def waiting_letters(self) -> Counter[tuple[str, int, str, int, int]]:
        return Counter((x.group, x.data, x.key, x.redrives, x.falls) for x in self.letters if x.waiting)

    # Totals

    def appended(self) -> int:
        return sum(len(partition.events) for partition in self.partitions.values())
