"""A producer: ``python -m chaos.producer ORDER``. Pushes batch after batch and keeps a journal of each.

What it is about to push is in the journal before it is sent, and that it was answered is there before the next. So one
that is killed knows what may be stored or not, and sends it again: with the same ids, or the same Idempotency-Key.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from chaos.http_client import NoResponse, Server
from chaos.journal import Journal, read

#: The queues, each with the way to make repeated requests idempotent.
QUEUES = {"orders": "ids", "clicks": "key", "calls": "ids"}
KEYS = {"orders": 6, "clicks": 6, "calls": 3}
BATCH = {"orders": 15, "clicks": 15, "calls": 3}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BEGINNING_US = 1_767_225_600_000_000
_STEP_US = 40_000
#: The last events are this much later, so that all other windows close.
_LATER_US = 3_600_000_000


@dataclass(frozen=True)
class Order:
    """The queues to push to."""

    name: str
    port: int
    journal: str
    #: When this file exists, push the last events and exit.
    stop: str
    seed: int
    pause_seconds: float
    queues: tuple[str, ...] = tuple(QUEUES)

    def text(self) -> str:
        """Return the order as a command-line argument."""
        return json.dumps(asdict(self))


class Producer:
    """Pushes to the queues in turn, and continues where its journal ends."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._chance = random.Random()
        self._server = Server(order.port)
        self._number = 0
        self._seqs: dict[str, int] = {}
        self._at_us = _BEGINNING_US
        self._unanswered: dict[str, Any] | None = None
        self._has_ended = False
        path = Path(order.journal)
        for line in read(path):
            self._replay(line)
        self._journal = Journal(path)

    def run(self) -> None:
        """Push until the stop file exists."""
        if self._unanswered is not None:
            self._push(self._unanswered)
        stop = Path(self._order.stop)
        while not self._has_ended:
            # A batch depends on its number only, so that a restarted producer creates the same one.
            self._chance.seed(f"{self._order.seed} {self._order.name} {self._number}")
            queue = self._order.queues[self._number % len(self._order.queues)]
            self._send(self._batch(queue, is_last=False))
            time.sleep(self._order.pause_seconds * self._chance.random() * 2)
            if stop.exists():
                for last in self._order.queues:
                    self._send(self._batch(last, is_last=True))
                self._journal.write({"end": True})
                return

    def _replay(self, line: dict[str, Any]) -> None:
        if "events" in line:
            self._number = line["n"] + 1
            self._unanswered = line
            for key, seq, at_us, _ in line["events"]:
                self._seqs[key] = seq + 1
                self._at_us = max(self._at_us, at_us)
        elif "answer" in line:
            self._unanswered = None
        else:
            self._has_ended = True

    def _batch(self, queue: str, *, is_last: bool) -> dict[str, Any]:
        keys = [f"{queue}-{self._order.name}-{i}" for i in range(KEYS[queue])]
        if is_last:
            self._at_us += _LATER_US
        else:
            keys = [self._chance.choice(keys) for _ in range(self._chance.randint(1, 2 * BATCH[queue]))]
        events = []
        for key in keys:
            self._at_us += _STEP_US
            seq = self._seqs.get(key, 0)
            self._seqs[key] = seq + 1
            events.append([key, seq, self._at_us, self._chance.randint(1, 100_000)])
        batch = {"n": self._number, "queue": queue, "events": events}
        self._number += 1
        return batch

    def _send(self, batch: dict[str, Any]) -> None:
        self._journal.write(batch)
        self._push(batch)

    def _push(self, batch: dict[str, Any]) -> None:
        """Repeat a push until it succeeds."""
        queue, events = batch["queue"], [_event(batch["queue"], *event) for event in batch["events"]]
        headers = {}
        if QUEUES[queue] == "key":
            headers["Idempotency-Key"] = f"{self._order.name}-{batch['n']}"
        tries = 0
        while True:
            tries += 1
            try:
                status, answer = self._server.post(f"/v1/queues/{queue}/events", events, headers)
            except NoResponse:
                status, answer = 0, None
            if status == 200:
                break
            if status not in (0, 429, 500, 503):
                raise RuntimeError(f"a push was answered with {status}: {answer}")
            time.sleep(0.2)
        self._journal.write(
            {
                "n": batch["n"],
                "answer": [answer["accepted"], answer["duplicates"], answer["replayed"]],
                "tries": tries,
                "t": time.monotonic(),
            }
        )


def _event(queue: str, key: str, seq: int, at_us: int, cents: int) -> dict[str, Any]:
    data: dict[str, Any] = {"seq": seq}
    if queue == "orders":
        data |= {"at": (_EPOCH + timedelta(microseconds=at_us)).isoformat(), "amount": cents / 100}
    event: dict[str, Any] = {"key": key, "data": data}
    if QUEUES[queue] == "ids":
        event["id"] = f"{key}-{seq}"
    return event


if __name__ == "__main__":
    Producer(Order(**json.loads(sys.argv[1]))).run()
