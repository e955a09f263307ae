"""The queries of the drivers: counts in windows, and calls behind a gate."""

from __future__ import annotations

from penstock import Stream, agg, token_bucket_gate

#: The checker defines these numbers independently.
totals = (
    Stream.from_("orders")
    .window_tumbling(seconds=5, event_time="at", idle_flush_seconds=86_400)
    .aggregate({"events": agg.count(), "total": agg.sum("amount")})
    .to("totals")
)

limiter = Stream.from_("calls").gate(token_bucket_gate(capacity=12, refill_per_sec=10)).to("approved")
