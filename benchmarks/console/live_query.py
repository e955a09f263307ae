"""``python -m benchmarks.console.live_query DATABASE_URL``: a query of events and amounts per user, for live rows."""

from __future__ import annotations

import sys

from benchmarks.console.plan import QUERY, STEADY
from penstock import Stream, agg
from penstock.core.settings import Settings


def main() -> None:
    """Run the query until SIGTERM."""
    (
        Stream.from_(STEADY.name)
        .window_tumbling(seconds=60)
        .aggregate({"events": agg.count(), "amount": agg.sum("amount")})
        .run(QUERY, settings=Settings(database_url=sys.argv[1]))
    )


if __name__ == "__main__":
    main()
