"""What the drivers run: windows that are counted, and calls that wait at a gate."""

from __future__ import annotations

from penstock import Stream, agg, token_bucket_gate

#: The checker has these numbers too, and takes none from here.
totals = (
    Stream.from_("orders")
    .window_tumbling(seconds=5, event_time="at", idle_flush_seconds=86_400)
    .aggregate({"events": agg.count(), "total": agg.sum("amount")})
    .to("totals")
)

limiter = Stream.from_("calls").gate(token_bucket_gate(capacity=12, refill_per_sec=10)).to("approved")
