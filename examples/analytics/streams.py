"""The streams of a small web analytics company: what `penstock demo` runs.

    penstock run examples/analytics/streams.py

They read four queues. Clicks and orders and readings say themselves when they happened, in the field `at`; calls to a
partner wait until the partner may be called. Every result is a row of `penstock_live.<name>` while its window is open.
"""

import os

from penstock import Stream, agg, token_bucket_gate
from penstock.sinks import Webhook

#: Windows go by the event's own time, and wait a second for what comes out of order.
_TIME = {"event_time": "at", "allowed_lateness_seconds": 1, "idle_flush_seconds": 10}
_clicks = Stream.from_("clicks")

# Views and visitors of each site, every five seconds. The rule "surge" watches the closed windows.
sites = (
    _clicks.window_tumbling(seconds=5, **_TIME)
    .aggregate({"views": agg.count(), "users": agg.count_distinct("user")})
    .to("sites.5s")
)

# Users online: who has clicked within the last minute. The window that ends next is the one to look at.
online = _clicks.window_sliding(size=60, slide=10, **_TIME).aggregate({"users": agg.count_distinct("user")})

# Views of each page in the last five minutes, whichever site and partition they come from.
pages = _clicks.key_by("url").window_sliding(size=300, slide=60, **_TIME).aggregate({"views": agg.count()})

# Revenue of each customer, exact to the penny: an amount that is no number is a dead letter, and its neighbours count.
revenue = (
    Stream.from_("orders")
    .window_tumbling(seconds=10, **_TIME)
    .aggregate({"orders": agg.count(), "revenue": agg.sum("amount"), "largest": agg.max("amount")})
    .to("revenue.10s")
)

# Sensors: average and extremes, and how many readings were above 80. The rule "hot" watches the averages.
sensors = (
    Stream.from_("readings")
    .window_tumbling(seconds=5, **_TIME)
    .aggregate(
        {
            "avg": agg.avg("value"),
            "min": agg.min("value"),
            "max": agg.max("value"),
            "count": agg.count(),
            "alerts": agg.count_if("value > 80"),
        }
    )
    .to("sensors.5s")
)

# A partner whose API takes ten calls a second for each customer, and twenty at once. What may not pass yet waits.
partner = (
    Stream.from_("calls")
    .gate(token_bucket_gate(capacity=20, refill_per_sec=10))
    .to("calls.allowed", Webhook(os.environ.get("PARTNER_URL", "http://127.0.0.1:8099/calls"), allow=["127.0.0.1"]))
)
