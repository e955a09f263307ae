"""Sections of the log, the server, the gates, the console and the end-to-end runs."""

from __future__ import annotations

from typing import Any

from benchmarks.page.names import NAMES
from benchmarks.page.parts import Panel, Plot, Section, Table
from benchmarks.page.results import Result, figures, find, unavailable


def log(result: Result) -> Section:
    section = Section(
        "The log",
        "Events/s by the number of events per push or pop. Client and PostgreSQL share the machine.",
    )
    peers: dict[str, Any] = find(result, "peers") or {}
    for operation, title in (("push", "push"), ("pop_ack", "pop, decode, acknowledge")):
        rates = {
            "penstock": find(result, operation) or {},
            **{name: peer.get(operation, {}) for name, peer in peers.items()},
        }
        batches = list(rates["penstock"])
        rows = [[NAMES[name], *(rate.get(batch) for batch in batches)] for name, rate in rates.items() if rate]
        section.tables.append(Table([f"{title}, events/s by batch size", *batches], rows))
        for peer in peers:
            for batch in batches:
                section.compare(
                    f"{title}, {batch} at a time", "events/s", rates["penstock"][batch], peer, rates[peer].get(batch)
                )
    section.plots.append(
        Plot(
            "log",
            "Events/s by batch size, Penstock and other queues on PostgreSQL",
            [
                Panel(
                    f"{title}, events/s",
                    {
                        NAMES[name]: [(float(batch), float(rate)) for batch, rate in (system.get(key) or {}).items()]
                        for name, system in {"penstock": result, **peers}.items()
                        if system.get(key)
                    },
                    "events per batch",
                    log_x=True,
                    log_y=True,
                )
                for key, title in (("push", "push"), ("pop_ack", "pop and acknowledge"))
            ],
        )
    )
    systems = {"penstock": result, **peers}
    costs = {name: _costs(system) for name, system in systems.items() if any(_costs(system))}
    head = [
        "pushes of 1,000 events",
        "bytes per event on disk, with indexes",
        "CPU s per million, client and PostgreSQL",
    ]
    section.tables.append(Table(head, [[NAMES[name], *values] for name, values in costs.items()]))
    for peer in peers:
        for unit, ours, theirs in zip(
            ("bytes per event", "CPU s per million"), _costs(result), _costs(peers[peer]), strict=True
        ):
            section.compare("push, 1000 at a time", unit, ours, peer, theirs, more_is_better=False)
    section.tables.append(
        Table(
            ["other operations of Penstock, events/s by batch size", "1", "10", "100", "1000"],
            [
                [label, *(find(result, *path, batch) for batch in ("1", "10", "100", "1000"))]
                for label, path in (
                    ("push of NDJSON", ("push_ndjson",)),
                    ("push of NDJSON, key from a field", ("push_ndjson_keyed",)),
                    ("pop of events that were pushed one at a time", ("pop_ack_pushed_singly",)),
                    ("push, 100 key partitions, deduplication", ("keyed_100", "push")),
                    ("pop, 100 key partitions", ("keyed_100", "pop_ack")),
                )
                if find(result, *path)
            ],
        )
    )
    section.tables.append(figures(result, {
        "CPU s per million, pop and ack of 1,000 events": ("cpu_s_per_million", "pop_ack"),
        "push of one event from 64 tasks, events/s": ("push_64_tasks",),
        "throughput ratio, long to short history": ("history_ratio",),
        "throughput ratio, with to without a held transaction": ("held_transaction_ratio",),
    }))  # fmt: skip
    section.notes += [
        f"{NAMES[name]}: {', '.join(f'{package} {version}' for package, version in peer['versions'].items())}"
        for name, peer in peers.items()
        if "versions" in peer
    ]
    section.notes += unavailable(peers)
    return section


def _costs(system: Result) -> tuple[float | None, float | None]:
    """Return the bytes per event and the CPU seconds per million events."""
    return find(system, "bytes_per_event"), find(system, "cpu_s_per_million", "push")


def ingest(result: Result) -> Section:
    section = Section("Ingestion over HTTP", "NDJSON to `penstock serve`, by the number of events per request.")
    batches = list(find(result, "events_per_s") or {})
    parts = ("server", "postgresql", "generator")
    rows = [
        [
            f"{int(batch):,} events per request",
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
            "Events/s and request latency over HTTP, by events per request",
            [
                Panel(
                    "events/s",
                    {"Penstock": [(float(batch), float(result["events_per_s"][batch])) for batch in batches]},
                    "events per request",
                    log_x=True,
                    log_y=True,
                ),
                Panel(
                    "milliseconds",
                    {
                        name: [(float(batch), float(result[key][batch])) for batch in batches]
                        for name, key in (("p50", "p50_ms"), ("p99", "p99_ms"))
                    },
                    "events per request",
                    log_x=True,
                ),
            ],
        )
    )
    return section


def gate(result: Result) -> Section:
    section = Section("Gates", "Rate limits per tenant: drain time compared with the minimum that the limits allow.")
    keys = ("drain_s", "ideal_s", "efficiency_pct", "rate_error_pct", "limit_exceeded")
    head = ["", "time, s", "minimum, s", "efficiency, %", "rate error, %", "limit violations"]
    rows = [
        [f"{run['model']}, {run['tenants']} × {run['events'] // run['tenants']:,}", *(run[key] for key in keys)]
        for run in find(result, "runs") or []
    ]
    section.tables.append(Table(head, rows))
    section.tables.append(
        figures(
            result,
            {
                "without a binding limit, events/s": ("raw_per_s",),
                "without a binding limit, CPU s per million": ("raw_cpu_s_per_million",),
                "100 active key partitions, CPU s": ("partitions", "active_100_cpu_s"),
                "100 active and 9,900 idle key partitions, CPU s": ("partitions", "active_100_of_10000_cpu_s"),
            },
        )
    )
    return section


def console(result: Result) -> Section:
    section = Section(
        "Browsers at the console",
        "Ingestion throughput lost to five open pages of the console. Browsers normally run on other machines than the "
        "server. Here they share one machine, so the result is that of browsers at idle priority and ingestion at full "
        "speed, which leaves no idle CPU time.",
    )
    sides = {
        "nobody": "no browser",
        "browsers_idle_priority": "five browsers, idle priority",
        "browsers_equal_priority": "five browsers, equal priority",
    }
    parts = ("server", "postgresql", "console", "browsers")
    for load, title in (("full_speed", "at full speed"), ("steady", "at a steady rate, with a query")):
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
        against = ["events/s, ratio to no browser", "CPU per event without browsers, ratio to no browser"]
        section.tables.append(Table([title, *head, *against], rows))
    section.tables.append(figures(result, {"throughput lost to five browsers, %": ("cost_pct",)}))
    return section


def e2e(result: Result) -> Section:
    section = Section("End to end", "HTTP ingestion, Spark and live rows on one machine, at a fixed rate.")
    section.tables.append(_end_to_end(result))
    return section


def day(result: Result) -> Section:
    section = Section("End to end at full speed", "A day's events over HTTP at full speed, until the last is counted.")
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
            "accepted, events/s": ("events_per_s",),
            "freshness p50, ms": ("freshness_p50_ms",),
            "freshness p99, ms": ("freshness_p99_ms",),
            "request p50, ms": ("request_p50_ms",),
            "request p99, ms": ("request_p99_ms",),
            "requests rejected with 429 or 503": ("refused",),
            "windows": ("windows",),
            "closed windows in the sink queue": ("closed_windows",),
            "exact": ("exact",),
        },
    )
    costs = [[f"CPU s per million: {labels[part]}", spent / rate * 1e6] for part, spent in cores.items() if rate]
    return Table(table.head, [*table.rows, *costs])
