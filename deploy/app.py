"""Example streams of a deployment: events per key and minute of the queue `events`. Replace them with your own."""

from penstock import Stream, agg

events_per_minute = (
    Stream.from_("events").window_tumbling(seconds=60).aggregate({"events": agg.count()}).to("events.per_minute")
)
