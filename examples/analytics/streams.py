"""The streams of a small web analytics company, which `penstock demo` runs.

    penstock run examples/analytics/streams.py

They read four queues. Clicks, orders and readings have their event time in the field `at`. Calls to a partner wait at a
gate. Each result is a row of `penstock_live.<name>` while its window is open. `penstock_live.<name>_current` has the
current window of each key.
"""

import os

from penstock import Stream, agg, token_bucket_gate
from penstock.sinks import Webhook

#: Windows use the event time and wait one second for late events.
_TIME = {"event_time": "at", "allowed_lateness_seconds": 1, "idle_flush_seconds": 10}
_clicks = Stream.from_("clicks")

# Views and visitors of each site, every five seconds. The rule "surge" watches the closed windows.
sites = (
    _clicks.window_tumbling(seconds=5, **_TIME)
    .aggregate({"views": agg.count(), "users": agg.count_distinct("user")})
    .to("sites.5s")
)

# Users online: those with a click in the last minute. `penstock_live.online_current` has the current number.
online = _clicks.window_sliding(size=60, slide=10, **_TIME).aggregate({"users": agg.count_distinct("user")})

# Views of each page in the last two minutes, over all sites and partitions.
pages = _clicks.key_by("url").window_sliding(size=120, slide=20, **_TIME).aggregate({"views": agg.count()})

# Revenue of each customer, exact to the penny. An amount that is no number becomes a dead letter.
revenue = (
    Stream.from_("orders")
    .window_tumbling(seconds=10, **_TIME)
    .aggregate({"orders": agg.count(), "revenue": agg.sum("amount"), "largest": agg.max("amount")})
    .to("revenue.10s")
)

# Sensors: average, minimum, maximum, and the number of readings above 80. The rule "hot" watches the averages.
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

# A partner whose API accepts ten calls a second per customer, and bursts of twenty. Other calls wait.
partner = (
    Stream.from_("calls")
    .gate(token_bucket_gate(capacity=20, refill_per_sec=10))
    .to("calls.allowed", Webhook(os.environ.get("PARTNER_URL", "http://127.0.0.1:8099/calls"), allow=["127.0.0.1"]))
)
