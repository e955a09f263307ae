"""The log, the server, the gates and everything together as sections."""

from __future__ import annotations

from typing import Any

from benchmarks.page.names import NAMES
from benchmarks.page.parts import Panel, Plot, Section, Table
from benchmarks.page.results import Result, figures, find, unavailable


def log(result: Result) -> Section:
    section = Section(
        "The log",
        "Events a second by how many go in one push or pop; client and PostgreSQL on the same machine.",
    )
    peers: dict[str, Any] = find(result, "peers") or {}
    for what, title in (("push", "push"), ("pop_ack", "pop, decode, acknowledge")):
        rates = {"penstock": find(result, what) or {}, **{peer: said.get(what, {}) for peer, said in peers.items()}}
        batches = list(rates["penstock"])
        rows = [[NAMES[who], *(rate.get(batch) for batch in batches)] for who, rate in rates.items() if rate]
        section.tables.append(Table([f"{title}, events/s by batch", *batches], rows))
        for peer in peers:
            for batch in batches:
                section.compare(
                    f"{title}, {batch} at a time", "events/s", rates["penstock"][batch], peer, rates[peer].get(batch)
                )
    section.plots.append(
        Plot(
            "log",
            "Events a second by batch size, Penstock and other queues on PostgreSQL",
            [
                Panel(
                    f"{what}, events/s",
                    {
                        NAMES[who]: [(float(batch), float(rate)) for batch, rate in (said.get(key) or {}).items()]
                        for who, said in {"penstock": result, **peers}.items()
                        if said.get(key)
                    },
                    "events in a batch",
                    log_x=True,
                    log_y=True,
                )
                for key, what in (("push", "push"), ("pop_ack", "pop and acknowledge"))
            ],
        )
    )
    costs = {who: _costs(said) for who, said in {"penstock": result, **peers}.items() if any(_costs(said))}
    head = [
        "pushed 1,000 at a time",
        "bytes an event on disk, with indexes",
        "CPU s per million, client and PostgreSQL",
    ]
    section.tables.append(Table(head, [[NAMES[who], *figures] for who, figures in costs.items()]))
    for peer in peers:
        for unit, ours, theirs in zip(
            ("bytes an event", "CPU s per million"), _costs(result), _costs(peers[peer]), strict=True
        ):
            section.compare("push, 1000 at a time", unit, ours, peer, theirs, more_is_better=False)
    section.tables.append(
        Table(
            ["Penstock in other forms, events/s by batch", "1", "10", "100", "1000"],
            [
                [label, *(find(result, *path, batch) for batch in ("1", "10", "100", "1000"))]
                for label, path in (
                    ("lines of NDJSON", ("push_ndjson",)),
                    ("lines of NDJSON, key from a field", ("push_ndjson_keyed",)),
                    ("pop of what was pushed one at a time", ("pop_ack_pushed_singly",)),
                    ("push, 100 lanes, deduplicated", ("lanes_100", "push")),
                    ("pop, 100 lanes, deduplicated", ("lanes_100", "pop_ack")),
                )
                if find(result, *path)
            ],
        )
    )
    section.tables.append(figures(result, {
        "CPU s per million, pop and ack by 1,000": ("cpu_s_per_million", "pop_ack"),
        "one at a time from 64 tasks, events/s": ("push_64_tasks",),
        "speed with a long history over speed with a short one": ("history_ratio",),
        "speed beside a held transaction over speed without": ("held_transaction_ratio",),
    }))  # fmt: skip
    section.notes += [
        f"{NAMES[peer]}: {', '.join(f'{package} {version}' for package, version in said['versions'].items())}"
        for peer, said in peers.items()
        if "versions" in said
    ]
    section.notes += unavailable(peers)
    return section


def _costs(said: Result) -> tuple[float | None, float | None]:
    """Bytes of an event, and CPU seconds of a million."""
    return find(said, "bytes_per_event"), find(said, "cpu_s_per_million", "push")


def ingest(result: Result) -> Section:
    section = Section("Ingestion over HTTP", "Lines of JSON to `penstock serve`, by how many a request has.")
    batches = list(find(result, "events_per_s") or {})
    parts = ("server", "postgresql", "generator")
    rows = [
        [
            f"{int(batch):,} events a request",
            *(find(result, key, batch) for key in ("events_per_s", "p50_ms", "p99_ms")),
            *(find(result, "cpu_s_per_million", batch, part) for part in parts),
        ]
        for batch in batches
    ]
    head = ["", "events/s", "p50 ms", "p99 ms", "CPU s per million: server", "PostgreSQL", "load generator"]
    section.tables.append(Table(head, rows))
    section.plots.append(
        Plot(
            "ingest",
            "Events a second over HTTP, and how long a request takes, by events in a request",
            [
                Panel(
                    "events/s",
                    {"Penstock": [(float(batch), float(result["events_per_s"][batch])) for batch in batches]},
                    "events in a request",
                    log_x=True,
                    log_y=True,
                ),
                Panel(
                    "milliseconds",
                    {
                        name: [(float(batch), float(result[key][batch])) for batch in batches]
                        for name, key in (("p50", "p50_ms"), ("p99", "p99_ms"))
                    },
                    "events in a request",
                    log_x=True,
                ),
            ],
        )
    )
    return section


def gate(result: Result) -> Section:
    section = Section("Gates", "Rate limits per tenant: how close to the least time that the limits allow.")
    keys = ("drain_s", "ideal_s", "efficiency_pct", "rate_error_pct", "limit_exceeded")
    head = ["", "took, s", "least, s", "%", "rate error, %", "times over a limit"]
    rows = [
        [f"{one['model']}, {one['tenants']} × {one['events'] // one['tenants']:,}", *(one[key] for key in keys)]
        for one in find(result, "runs") or []
    ]
    section.tables.append(Table(head, rows))
    section.tables.append(
        figures(
            result,
            {
                "limits that never bind, events/s": ("raw_per_s",),
                "the same, CPU s per million": ("raw_cpu_s_per_million",),
                "100 lanes, CPU s": ("lanes", "active_100_cpu_s"),
                "100 lanes beside 9,900 that rest, CPU s": ("lanes", "active_100_of_10000_cpu_s"),
            },
        )
    )
    return section


def console(result: Result) -> Section:
    section = Section(
        "Browsers at the console",
        "What five open pages of the console cost ingestion. As a rule browsers run elsewhere than the server; here "
        "they share its machine, so those at idle priority are judged, at full speed, where nothing is left over.",
    )
    sides = {
        "nobody": "nobody looks",
        "browsers_idle_priority": "five browsers, idle priority",
        "browsers_equal_priority": "five browsers, equal priority",
    }
    parts = ("server", "postgresql", "console", "browsers")
    for load, title in (("full_speed", "at full speed"), ("steady", "at a steady rate, beside a query")):
        rows = [
            [
                label,
                *(find(result, load, side, key) for key in ("events_per_s", "p50_ms", "p99_ms")),
                *(find(result, load, side, "cores", part) for part in parts),
                *(find(result, load, key, side) for key in ("ratio", "cpu_ratio")),
            ]
            for side, label in sides.items()
            if find(result, load, side)
        ]
        head = ["events/s", "p50 ms", "p99 ms", "cores: server", "PostgreSQL", "console", "browsers"]
        against = ["events/s over those with nobody", "CPU of server, PostgreSQL and console for an event, likewise"]
        section.tables.append(Table([title, *head, *against], rows))
    section.tables.append(figures(result, {"ingestion lost to five browsers, %": ("cost_pct",)}))
    return section


def e2e(result: Result) -> Section:
    section = Section("Everything together", "HTTP in, Spark, live rows out, all on one machine.")
    section.tables.append(_end_to_end(result))
    return section


def day(result: Result) -> Section:
    section = Section(
        "A day's events at once", "Events over HTTP, as fast as they are taken, until the last is counted."
    )
    section.tables.append(_end_to_end(result))
    return section


def _end_to_end(result: Result) -> Table:
    rate = find(result, "events_per_s")
    cores = find(result, "cores") or {}
    labels = {"engine": "engine", "postgresql": "PostgreSQL", "server": "HTTP server", "pusher": "load generator"}
    table = figures(
        result,
        {
            "events": ("events",),
            "seconds": ("seconds",),
            "offered, events/s": ("offered_per_s",),
            "taken, events/s": ("events_per_s",),
            "freshness p50, ms": ("freshness_p50_ms",),
            "freshness p99, ms": ("freshness_p99_ms",),
            "request p50, ms": ("request_p50_ms",),
            "request p99, ms": ("request_p99_ms",),
            "requests told to wait": ("refused",),
            "windows": ("windows",),
            "of them closed, in the sink queue once": ("closed_windows",),
            "exact": ("exact",),
        },
    )
    costs = [[f"CPU s per million: {labels[part]}", spent / rate * 1e6] for part, spent in cores.items() if rate]
    return Table(table.head, [*table.rows, *costs])
