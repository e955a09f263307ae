"""``python -m benchmarks.console.query DATABASE_URL``: events and amounts of each user, so that there are live rows."""

from __future__ import annotations

import sys

from benchmarks.console.plan import QUERY, STEADY
from penstock import Stream, agg
from penstock.core.settings import Settings


def main() -> None:
    """Run it until SIGTERM."""
    (
        Stream.from_(STEADY.name)
        .window_tumbling(seconds=60)
        .aggregate({"events": agg.count(), "amount": agg.sum("amount")})
        .run(QUERY, settings=Settings(database_url=sys.argv[1]))
    )


if __name__ == "__main__":
    main()
