"""The expected results, computed from the journals of the producers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from chaos.journal import read

WINDOW_US = 5_000_000

#: A key and the microsecond at which its window begins; how many events it holds, and their sum in cents.
Windows = dict[tuple[str, int], tuple[int, int]]


@dataclass
class Produced:
    """All events pushed by all producers."""

    #: By queue and key, the numbers in the order in which they were pushed.
    events: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    windows: Windows = field(default_factory=dict)
    #: The newest window of each key, which is still open.
    newest: dict[str, int] = field(default_factory=dict)
    requests: int = 0
    #: Requests sent more than once, and requests that the server had already stored.
    repeated: int = 0
    known: int = 0
    problems: list[str] = field(default_factory=list)

    def count(self, queue: str) -> int:
        """Return the number of events pushed to a queue."""
        return sum(map(len, self.events.get(queue, {}).values()))

    def closed(self) -> Windows:
        """Return the closed windows."""
        return {place: totals for place, totals in self.windows.items() if self.newest[place[0]] != place[1]}


def produced(journals: Iterable[Path]) -> Produced:
    """Read the journals, and report requests without a response as problems."""
    found = Produced()
    for path in journals:
        open_request: int | None = None
        for line in read(path):
            if "events" in line:
                open_request = line["n"]
                found.requests += 1
                _add(found, line["queue"], line["events"])
            elif "answer" in line:
                if line["n"] != open_request:
                    found.problems.append(f"{path.name}: request {line['n']} was answered, {open_request} was sent")
                open_request = None
                _, duplicates, replayed = line["answer"]
                found.repeated += line["tries"] > 1
                found.known += bool(duplicates or replayed)
        if open_request is not None:
            found.problems.append(f"{path.name}: request {open_request} was never answered")
    return found


def _add(found: Produced, queue: str, events: list[tuple[str, int, int, int]]) -> None:
    keys = found.events.setdefault(queue, {})
    for key, seq, at_us, cents in events:
        keys.setdefault(key, []).append(seq)
        if queue == "orders":
            start = at_us - at_us % WINDOW_US
            count, total = found.windows.get((key, start), (0, 0))
            found.windows[key, start] = (count + 1, total + cents)
            found.newest[key] = max(found.newest.get(key, 0), start)


def cents(amount: object) -> int:
    """Parse an amount exactly."""
    scaled = Decimal(str(amount)) * 100
    if scaled != int(scaled):
        raise ValueError(f"{amount} is no amount in cents")
    return int(scaled)
