"""A gated stream whose driver is killed, and the invariants of its output."""

from __future__ import annotations

from penstock import Stream, SyncPenstock, token_bucket_gate
from penstock.stream.gates import NANOS_PER_TOKEN as TOKEN
from tests.engine.gates import ideal_limiter
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
    """Check that each event is released once, in order and within the limit; return the number of events."""
    seen: dict[str, list[tuple[int, int, int]]] = {}
    for event in client.queue("approved").browse(limit=100_000):
        seen.setdefault(str(event.key), []).append((event.offset, event.data["seq"], micros(event.appended_at)))
    for key, events in seen.items():
        events.sort()
        assert [seq for _, seq, _ in events] == list(range(len(events))), f"{key}: lost, twice or out of order"
        grants = [(at, TOKEN) for _, _, at in events]
        assert ideal_limiter.respects_bucket(grants, CAPACITY * TOKEN, RATE * TOKEN), key
        if each is not None:
            assert len(events) == each, key
    return sum(map(len, seen.values()))
