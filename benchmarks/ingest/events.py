"""Request bodies: distinct events of about 90 bytes."""

from __future__ import annotations

import random

from benchmarks.ingest.plan import BODIES, KEYS


def body(number: int, batch: int) -> bytes:
    """Return the lines of one request. ``n`` numbers the events of all bodies."""
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
    return [body(number, batch) for number in range(BODIES)]
