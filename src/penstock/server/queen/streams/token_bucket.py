"""Checks the releases of a client's token bucket by the clock of the database.

A client refills its bucket by its own clock when it decides, and commits the release later. If clocks differ, or one
commit is slower than the next, more is released in some time than the bucket allows. So the server keeps a bucket of
its own beside the client's: it is refilled by the time between commits, and a release waits until it is full enough.

The server does not know the limits of the bucket. It derives them from the states of the client: the first one starts
with a full bucket, and a refill is proportional to the time unless it fills the bucket. Until such a refill is seen,
the largest refill per second is the rate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from penstock.core.errors import TransactionRefused
from penstock.db.statements import Statements
from penstock.log.log import Log
from penstock.server.queen.delivery.event_lookup import PartitionRef

_sql = Statements("penstock.server.queen.streams", "token_bucket.sql")

#: A release that would have to wait longer is refused if the rate is known. Its messages are delivered again when the
#: lease expires.
_MAX_WAIT_SECONDS = 1.0
#: Sums of floating-point numbers differ in the last digits.
_PRECISION = 1e-9


class BucketState(msgspec.Struct, rename="camel"):
    """The state of a token bucket as clients write it."""

    tokens: float
    last_refill_at: float
    consumed_total: float


@dataclass(frozen=True, slots=True)
class _StoredBucket:
    state_key: str
    value: str
    #: The server's bucket, without its refill since it was stored; None if the row is older than the check.
    capacity: float | None
    rate: float | None
    min_rate: float | None
    tokens: float | None
    #: The time since it was stored.
    seconds: float


@dataclass(frozen=True, slots=True)
class BucketRelease:
    """A release of a token bucket: what it costs, and the limits of the bucket as far as they are known."""

    cost: float
    capacity: float
    #: Tokens per second, and the most that were seen while the rate is not known.
    rate: float | None = None
    min_rate: float | None = None
    wait_seconds: float = 0.0


def parse_bucket(value: bytes) -> BucketState | None:
    """Return the state of a token bucket, or None if the value is another one."""
    try:
        return msgspec.json.decode(value, type=BucketState)
    except msgspec.MsgspecError:
        return None


async def admit_releases(
    log: Log, query_id: int, partition: PartitionRef, buckets: Mapping[str, BucketState]
) -> dict[str, BucketRelease]:
    """Return the release of each bucket, by its state key; raise TransactionRefused if one is much too early.

    Wait until the buckets are full enough.
    """
    params = {"query": query_id, "partition": partition.partition_id, "keys": list(buckets)}
    stored = {row.state_key: row for row in await log.database.fetch(_StoredBucket, _sql["read"], params)}
    releases: dict[str, BucketRelease] = {}
    for key, bucket in buckets.items():
        release = _derive_release(stored.get(key), bucket)
        if release is None:
            continue
        if release.wait_seconds > _MAX_WAIT_SECONDS and release.rate is not None:
            raise TransactionRefused(
                f"the token bucket releases {release.cost:g} tokens {release.wait_seconds:.1f} s too early by the "
                "clock of the database: synchronize the clock of the worker"
            )
        releases[key] = release
    wait = max((release.wait_seconds for release in releases.values()), default=0.0)
    if wait > 0:
        await asyncio.sleep(min(wait, _MAX_WAIT_SECONDS))
    return releases


def _derive_release(stored: _StoredBucket | None, bucket: BucketState) -> BucketRelease | None:
    """Compare the new state of a bucket with the stored one; None if the two are not states of a token bucket."""
    if stored is None:
        return BucketRelease(bucket.consumed_total, bucket.tokens + bucket.consumed_total)
    before = parse_bucket(stored.value.encode())
    if before is None:
        return None
    cost = bucket.consumed_total - before.consumed_total
    full = bucket.tokens + cost
    refill = full - before.tokens
    elapsed = (bucket.last_refill_at - before.last_refill_at) / 1000
    if cost < 0 or refill < -_PRECISION * max(full, 1.0) or elapsed < 0:
        return None
    known = before.tokens if stored.capacity is None else stored.capacity
    capacity = max(known, full)
    rate, min_rate = stored.rate, stored.min_rate
    if elapsed > 0 and refill > 0:
        seen = refill / elapsed
        if full < capacity * (1 - _PRECISION):
            rate = seen
        elif rate is not None and seen > rate * (1 + _PRECISION):
            rate = None  # the client has another bucket now
        min_rate = max(min_rate or 0.0, seen)
    used_rate = min_rate if rate is None else rate
    if used_rate is None or stored.tokens is None:
        return BucketRelease(cost, capacity, rate, min_rate)
    # A higher capacity than the known one was there before, and full.
    level = min(capacity, stored.tokens + (capacity - known) + used_rate * stored.seconds)
    missing = cost - level
    wait = missing / used_rate if missing > _PRECISION * capacity else 0.0
    return BucketRelease(cost, capacity, rate, min_rate, wait)
