"""Pathway: the files as a bounded table, event-time windows, its own PostgreSQL writer."""

from __future__ import annotations

import pathway as pw  # type: ignore[import-not-found]  # in this peer's own environment
from pathway.internals.parse_graph import G  # type: ignore[import-not-found]  # same
from psycopg.conninfo import conninfo_to_dict

from benchmarks.peers.windows import WINDOW_MS, WindowJob, serve


class _Event(pw.Schema):  # type: ignore[misc]  # untyped base class
    customer: str
    amount: float
    ts: int


def drain(job: WindowJob) -> None:
    G.clear()
    events = pw.io.jsonlines.read(job.source, schema=_Event, mode="static")
    counted = events.windowby(
        events.ts, window=pw.temporal.tumbling(duration=WINDOW_MS, origin=0), instance=events.customer
    ).reduce(
        key=pw.this._pw_instance,
        start_ms=pw.this._pw_window_start,
        count=pw.reducers.count(),
        total=pw.reducers.sum(pw.this.amount),
        max=pw.reducers.max(pw.this.amount),
    )
    settings = {name: value for name, value in conninfo_to_dict(job.url).items() if value}
    pw.io.postgres.write(
        counted,
        settings,
        job.table,
        output_table_type="snapshot",
        primary_key=[counted.key, counted.start_ms],
    )
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


if __name__ == "__main__":
    serve(["pathway"], drain)
