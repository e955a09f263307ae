"""The rules of the log as plain Python: what a push stores, what a pop may deliver, what an ack changes.

Nothing here is taken from the code under test but the names of partitions. Time is a number of seconds that the test
moves in steps of 100, while everything that lasts lasts an odd multiple of 50: what the machine itself takes does not
matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["completed", "failed", "retry", "dead_letter"]

#: What becomes of one acknowledgement.
Verdict = Literal["taken", "dead", "noop", "committed", "late", "held back"]

LEASE = 250
RETRY_DELAY = 150


@dataclass
class Letter:
    """A dead letter; ``waiting`` until it is sent back."""

    group: str
    data: int
    key: str
    waiting: bool = True
    redrives: int = 0
    falls: int = 1


@dataclass
class Stored:
    """An event at its place in a lane."""

    data: int
    key: str
    id: str | None
    at: int
    #: The dead letter that it was; then only that one's group gets it.
    letter: Letter | None = None

    def is_for(self, group: str) -> bool:
        return self.letter is None or self.letter.group == group


@dataclass
class Lane:
    epoch: int
    name: str
    events: list[Stored] = field(default_factory=list)


@dataclass
class Standing:
    """Where a group stands in a lane."""

    next: int = 0
    lease: str | None = None
    lease_end: int = 0
    until: int = 0
    ready_at: int = 0
    failures: int = 0
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
    lanes: dict[tuple[int, str], Lane] = field(default_factory=dict)
    groups: dict[str, dict[tuple[int, str], Standing]] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)

    # Pushing

    def lane(self, name: str) -> Lane:
        """The lane of that name in the epoch of today; made on first use, and read by all groups from its start."""
        return self.lanes.setdefault((self.epoch, name), Lane(self.epoch, name))

    def push(self, asked: Sequence[tuple[int, str, str | None]], told: Sequence[tuple[str, int, bool]]) -> None:
        """Store a request (data, key, id), if where its events are said to be is where they may be.

        New ones follow the last of their lane without a gap, in the order of the request per key; an id is stored
        once for its key within the window, and its repetitions are said to be where it is.
        """
        new: dict[tuple[int, str], dict[int, Stored]] = {}
        last: dict[str, int] = {}
        first: dict[tuple[str, str], tuple[str, int]] = {}
        for (data, key, id), (name, offset, is_duplicate) in zip(asked, told, strict=True):
            lane = self.lane(self.place(key))
            if not is_duplicate:
                assert lane.name == name
                assert self._seen(key, id) is None, f"the id {id} was there already, at {self._seen(key, id)}"
                new.setdefault((lane.epoch, lane.name), {})[offset] = Stored(data, key, id, self.now)
                assert offset > last.get(key, -1), f"the order of {key} is not that of the request"
                last[key] = offset
                if id is not None and self.window:
                    assert (key, id) not in first, f"the id {id} was stored twice"
                    first[key, id] = (name, offset)
        for (_, key, id), (name, offset, is_duplicate) in zip(asked, told, strict=True):
            if is_duplicate:
                assert id is not None
                assert (name, offset) in (self._seen(key, id), first.get((key, id))), f"the id {id} is not at {offset}"
        for where, events in new.items():
            stored = self.lanes[where].events
            assert sorted(events) == list(range(len(stored), len(stored) + len(events))), "there is a gap"
            stored += [events[offset] for offset in sorted(events)]

    def _seen(self, key: str, id: str | None) -> tuple[str, int] | None:
        """Where the newest event of that key and id is, if it is in the window, however the queue was partitioned."""
        for lane in sorted(self.lanes.values(), key=lambda lane: -lane.epoch):
            for offset in reversed(range(len(lane.events))):
                seen = lane.events[offset]
                if id is None or (seen.key, seen.id) != (key, id) or seen.letter is not None:
                    continue
                if self.now - seen.at < self.window:
                    return lane.name, offset
        return None

    # Groups

    def subscribe(self, group: str, at_end: bool) -> None:
        standings = self.groups.setdefault(group, {})
        for where, lane in self.lanes.items():
            standings[where] = Standing(len(lane.events) if at_end else 0)

    def standing(self, group: str, lane: Lane) -> Standing:
        return self.groups[group].setdefault((lane.epoch, lane.name), Standing())

    def standings(self, group: str) -> Iterator[tuple[Lane, Standing]]:
        for lane in self.lanes.values():
            yield lane, self.standing(group, lane)

    def unread(self, group: str, lane: Lane) -> list[int]:
        """What the group has yet to complete in a lane, due or not."""
        at = self.standing(group, lane)
        return [o for o in range(at.next, len(lane.events)) if o not in at.skipped and lane.events[o].is_for(group)]

    def lag(self, group: str) -> tuple[int, int]:
        """The least and the most that it may be said to be behind.

        Events in its way that are not for it are passed over at the latest when it pops.
        """
        least = most = 0
        for lane, at in self.standings(group):
            most += len(lane.events) - at.next
            unread = self.unread(group, lane)
            least += len(lane.events) - unread[0] if unread else 0
        return least, most

    def seek(self, group: str, place: Callable[[Lane], int], partition: str | None) -> int:
        moved = 0
        for lane, at in self.standings(group):
            if partition in (None, lane.name):
                at.next = max(0, min(place(lane), len(lane.events)))
                at.lease, at.ready_at, at.failures = None, 0, 0
                at.skipped.clear()
                moved += 1
        return moved

    # Popping

    def deliverable(self, group: str, lane: Lane) -> list[int]:
        """What a pop may deliver of a lane now, in this order."""
        at = self.standing(group, lane)
        if (at.lease is not None and self.now < at.until) or self.now < at.ready_at:
            return []
        if any(self.unread(group, other) for other in self.lanes.values() if other.epoch < lane.epoch):
            return []
        due: list[int] = []
        for offset in self.unread(group, lane):
            if lane.events[offset].at + self.delay > self.now:
                break
            due.append(offset)
        return due

    def delivered(self, group: str, lane: Lane, offsets: Sequence[int], lease: str | None) -> None:
        at = self.standing(group, lane)
        at.lease, at.lease_end, at.until = lease, offsets[-1] + 1, self.now + LEASE

    def extend(self, group: str, lane: Lane, lease: str | None, seconds: int) -> bool:
        at = self.standing(group, lane)
        if at.lease != lease or self.now >= at.until:
            return False
        at.until = max(at.until, self.now + seconds)
        return True

    # Acknowledging

    def ack(self, group: str, lane: Lane, lease: str | None, said: Iterable[tuple[int, Status]]) -> dict[int, Verdict]:
        """Say of each offset what is to become of it, and learn what did."""
        at = self.standing(group, lane)
        verdicts: dict[int, Verdict] = {}
        if at.lease != lease or self.now >= at.until:
            for offset, status in said:
                is_behind = offset < at.next
                verdicts[offset] = "late" if not is_behind else "noop" if status == "completed" else "committed"
            return verdicts
        begin, already_skipped = at.next, set(at.skipped)
        held: Status | None = None
        for offset, status in sorted(said):
            if offset < begin or offset in already_skipped:
                verdicts[offset] = "noop" if status == "completed" else "committed"
            elif held is not None:
                verdicts[offset] = "held back"
            elif status == "completed":
                at.next, at.failures = offset + 1, 0
                verdicts[offset] = "taken"
            elif status == "dead_letter" or (status == "failed" and at.failures >= self.retry_limit):
                self.bury(group, lane.events[offset])
                at.skipped.add(offset)
                verdicts[offset] = "dead"
            else:
                held = status
                at.failures += status == "failed"
                verdicts[offset] = "taken"
            while at.next in at.skipped:
                at.skipped.remove(at.next)
                at.next, at.failures = at.next + 1, 0
        at.skipped = {offset for offset in at.skipped if offset >= at.next}
        if held is not None or at.next >= at.lease_end:
            at.lease = None
            at.ready_at = self.now + RETRY_DELAY if held == "failed" else 0
        return verdicts

    # Dead letters

    def bury(self, group: str, event: Stored) -> None:
        letter = event.letter
        if letter is not None and not letter.waiting:
            letter.waiting, letter.falls = True, letter.falls + 1
        else:
            self.letters.append(Letter(group, event.data, event.key))

    def redrive(self, group: str | None, limit: int) -> tuple[int, int]:
        """Send the oldest letters back: how many went, and how many could not."""
        chosen = [letter for letter in self.letters if letter.waiting and group in (None, letter.group)][:limit]
        replayed = 0
        for letter in chosen:
            if letter.redrives < self.max_redrives:
                letter.waiting, letter.redrives, replayed = False, letter.redrives + 1, replayed + 1
                self.lane(self.place(letter.key)).events.append(Stored(letter.data, letter.key, None, self.now, letter))
        return replayed, len(chosen) - replayed

    def waiting_letters(self) -> Counter[tuple[str, int, str, int, int]]:
        return Counter((x.group, x.data, x.key, x.redrives, x.falls) for x in self.letters if x.waiting)

    # All of it

    def appended(self) -> int:
        return sum(len(lane.events) for lane in self.lanes.values())
