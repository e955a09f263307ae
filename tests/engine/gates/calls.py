"""Calls that wait at a gate whose driver is killed, and what has to be true of those that come through."""

from __future__ import annotations

from penstock import Stream, SyncPenstock, token_bucket_gate
from penstock.stream.gates import NANO
from tests.engine.gates import limiter
from tests.engine.oracle import micros

CAPACITY, RATE = 20, 15
TENANTS = 3


def stream() -> Stream:
    return Stream.from_("calls").gate(token_bucket_gate(capacity=CAPACITY, refill_per_sec=RATE)).to("approved")


def prepare(client: SyncPenstock, each: int) -> None:
    for queue in ("calls", "approved"):
        client.queue(queue).create("key")
    client.queue("calls").push([{"key": f"t{t}", "data": {"seq": i}} for i in range(each) for t in range(TENANTS)])


def check(client: SyncPenstock, each: int | None = None) -> int:
    """Each once, in order, within the limit by the times that the consumer sees; how many came through."""
    seen: dict[str, list[tuple[int, int, int]]] = {}
    for event in client.queue("approved").browse(limit=100_000):
        seen.setdefault(str(event.key), []).append((event.offset, event.data["seq"], micros(event.appended_at)))
    for key, some in seen.items():
        some.sort()
        assert [seq for _, seq, _ in some] == list(range(len(some))), f"{key}: lost, twice or out of order"
        passed = [(at, NANO) for _, _, at in some]
        assert limiter.bucket_is_kept(passed, CAPACITY * NANO, RATE * NANO), key
        if each is not None:
            assert len(some) == each, key
    return sum(map(len, seen.values()))
