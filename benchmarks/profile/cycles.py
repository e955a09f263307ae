"""Wall-clock time of the stages of a cycle, from the ledger of the query."""

from __future__ import annotations

from typing import Any

import psycopg

_CYCLES = """
SELECT extract(epoch FROM started_at - planned_at) * 1000,
    extract(epoch FROM committed_at - started_at) * 1000,
    extract(epoch FROM committed_at - lag(committed_at) OVER (ORDER BY cycles.cycle)) * 1000,
    took, events_in
FROM penstock.cycles JOIN penstock.queries ON queries.id = cycles.query_id
WHERE queries.name = %s AND events_in > 0 AND planned_at > clock_timestamp() - make_interval(secs => %s)
"""
#: The stages by their name in the ledger, in order.
_PARTS = {
    "spark": "Spark's job, with the tasks' reading: until it is done",
    "prepare": "driver: reports checked, partials laid out",
    "copy": "commit: partials copied to PostgreSQL",
    "advance": "commit: fence checked, positions moved",
    "merge": "commit: merged into live rows, windows closed",
    "dead letters": "commit: dead letters",
    "append": "commit: closed windows into the sink queue",
}


def by_part(url: str, query: str, seconds: float) -> dict[str, object]:
    """Return the mean milliseconds of each stage, over the recent cycles of a query that had events."""
    with psycopg.connect(url) as conn:
        rows = conn.execute(_CYCLES, (query, seconds)).fetchall()
    took = {label: _mean([row[3].get(part, 0.0) for row in rows]) for part, label in _PARTS.items()}
    return {
        "cycles": len(rows),
        "events_per_cycle": round(_mean([row[4] for row in rows])),
        "mean_ms": {
            "from the plan until it has its turn": _mean([row[0] for row in rows]),
            **took,
            "commit: the ledger, and the rest": round(_mean([row[1] for row in rows]) - sum(took.values()), 2),
            "from one commit to the next": _mean([row[2] for row in rows if row[2] is not None]),
        },
    }


def _mean(values: list[Any]) -> float:
    return round(float(sum(values)) / max(len(values), 1), 2)
