"""The events that are sent: lines of about a hundred bytes, every one different."""

from __future__ import annotations

import random

from benchmarks.ingest.plan import BODIES, KEYS


def body(number: int, batch: int) -> bytes:
    """The lines of one request; ``n`` counts the events of all bodies."""
    chance = random.Random(number)
    first = number * batch
    return b"\n".join(
        b'{"n":%d,"user":"user-%d","kind":"%s","amount":%d.%02d,"session":"%016x"}'
        % (
            first + i,
            chance.randrange(KEYS),
            chance.choice((b"view", b"cart", b"purchase")),
            chance.randrange(1000),
            chance.randrange(100),
            chance.getrandbits(64),
        )
        for i in range(batch)
    )


def bodies(batch: int) -> list[bytes]:
    """All of them."""
    return [body(number, batch) for number in range(BODIES)]
