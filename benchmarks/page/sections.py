"""The benchmarks as sections: which of their figures stand on the page, and which are a peer's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import Any

from benchmarks.page.parts import Panel, Plot, Section, Table
from benchmarks.page.results import Result, find

NAMES = {
    "penstock": "Penstock",
    "plain_spark": "plain Spark",
    "plain_spark_one_batch": "plain Spark, all in one batch",
    "pgmq": "pgmq",
    "pgqueuer": "PgQueuer",
    "procrastinate": "Procrastinate",
    "flink": "PyFlink SQL",
    "pathway": "Pathway",
    "bytewax": "Bytewax",
    "redis": "Redis, four commands an event",
    "redis_pipelined": "Redis, pipelines of 100 events",
    "duckdb": "DuckDB (the ceiling: one shot, no stream)",
    "penstock_text": "Penstock, parsed by Spark",
    "json": "files of JSON",
    "parquet": "files of Parquet",
}


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
    size = find(result, "bytes_per_event")
    section.tables.append(
        Table(
            ["bytes an event on disk, tables and indexes", "bytes"],
            [["Penstock", size], *([NAMES[peer], said.get("bytes_per_event")] for peer, said in peers.items())],
        )
    )
    for peer, said in peers.items():
        section.compare("bytes an event", "bytes", size, peer, said.get("bytes_per_event"), more_is_better=False)
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
    section.tables.append(_figures(result, {
        "CPU s per million, push by 1,000": ("cpu_s_per_million", "push"),
        "CPU s per million, pop and ack by 1,000": ("cpu_s_per_million", "pop_ack"),
        "one at a time from 64 tasks, events/s": ("push_64_tasks",),
        "speed with a long history over speed with a short one": ("history_ratio",),
        "speed beside a held transaction over speed without": ("held_transaction_ratio",),
    }))  # fmt: skip
    section.notes += _unavailable(peers)
    return section


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


def drain(result: Result) -> Section:
    section = Section(
        "Draining into windows, warm",
        "How fast a queue is drained into live rows and closed windows, beside plain Structured Streaming.",
    )
    drains: dict[str, list[dict[str, float]]] = find(result, "drains") or {}
    rates = {what: median(one["events_per_s"] for one in some) for what, some in drains.items()}
    engine = {what: median(one["engine_cpu_s_per_million"] for one in some) for what, some in drains.items()}
    server = {what: median(one["postgresql_cpu_s_per_million"] for one in some) for what, some in drains.items()}
    labels = {
        **NAMES,
        "key_queue": "Penstock, queue by key with 1,000 lanes",
        "python_map": "Penstock, with a Python function on every event",
        "million_keys": "Penstock, a million keys",
    } | {what: f"Penstock, {int(what[8:]):,} events" for what in drains if what.startswith("scaling_")}
    head = ["", "events", "events/s", "CPU s per million: engine", "PostgreSQL"]
    rows = [[labels[what], drains[what][0]["events"], rates[what], engine[what], server[what]] for what in drains]
    section.tables.append(Table(head, rows))
    compared = [what for what in ("penstock", "plain_spark", "plain_spark_one_batch") if what in drains]
    section.plots.append(
        Plot(
            "drain",
            "Events a second into windows, and what a million cost, Penstock and plain Spark",
            [
                Panel("events/s", {NAMES[what]: {"": rates[what]} for what in compared}),
                Panel("CPU s per million", {NAMES[what]: {"": engine[what] + server[what]} for what in compared}),
            ],
        )
    )
    for peer in compared[1:]:
        section.compare("windows, warm", "events/s", rates.get("penstock"), peer, rates[peer])
        if "penstock" in drains:
            ours, theirs = (engine[what] + server[what] for what in ("penstock", peer))
            section.compare("windows, warm", "CPU s per million", ours, peer, theirs, more_is_better=False)
    return section


def freshness(result: Result) -> Section:
    section = Section("Freshness", "From the call of a push to the row in SQL that shows the event.")
    labels = {
        "1000": "Penstock, eager, 1,000 events/s",
        "20000": "Penstock, eager, 20,000 events/s",
        "default": "Penstock as it is by default, 1,000 events/s",
        "plain_spark": "plain Spark, file source, 1,000 events/s",
    }
    cases = {name: result[name] for name in labels if name in result}
    keys = ("p50_ms", "p95_ms", "p99_ms", "cores")
    rows = [
        [labels[name], *(case[key] for key in keys), case["cores"] / case["rate"] * 1e6] for name, case in cases.items()
    ]
    section.tables.append(Table(["", "p50 ms", "p95 ms", "p99 ms", "cores", "CPU s per million"], rows))
    percentiles = {labels[name]: {key[:3]: case[key] for key in keys[:3]} for name, case in cases.items()}
    section.plots.append(
        Plot("freshness", "Milliseconds from push to row, as percentiles", [Panel("milliseconds", percentiles)])
    )
    for key in keys:
        unit = "cores" if key == "cores" else "ms"
        what = f"freshness at 1,000 events/s{'' if key == 'cores' else f', {key[:3]}'}"
        ours, theirs = find(result, "1000", key), find(result, "plain_spark", key)
        section.compare(what, unit, ours, "plain_spark", theirs, more_is_better=False)
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
        _figures(
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


def e2e(result: Result) -> Section:
    section = Section("Everything together", "HTTP in, Spark, live rows out, all on one machine.")
    section.tables.append(_end_to_end(result))
    return section


def day(result: Result) -> Section:
    section = Section("A day's events at once", "50 million events over HTTP, as fast as they are taken, exact.")
    section.tables.append(_end_to_end(result))
    return section


def _end_to_end(result: Result) -> Table:
    rate = find(result, "events_per_s")
    cores = find(result, "cores") or {}
    labels = {"engine": "engine", "postgresql": "PostgreSQL", "server": "HTTP server", "pusher": "load generator"}
    table = _figures(
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
            "exact": ("exact",),
        },
    )
    costs = [[f"CPU s per million: {labels[part]}", spent / rate * 1e6] for part, spent in cores.items() if rate]
    return Table(table.head, [*table.rows, *costs])


def connector(result: Result) -> Section:
    section = Section("The connector", '`format("penstock")` in Spark, beside files that hold the same events.')
    for way in ("read", "write"):
        rates: dict[str, float] = find(result, f"{way}_events_per_s") or {}
        rows = [[NAMES[who], rate, find(result, "cpu_s_per_million", way, who)] for who, rate in rates.items()]
        section.tables.append(Table([way, "events/s", "CPU s per million"], rows))
        ours = max((rate for who, rate in rates.items() if who.startswith("penstock")), default=None)
        for peer in ("json", "parquet"):
            section.compare(f"{way} in Spark", "events/s", ours, peer, rates.get(peer))
    section.plots.append(
        Plot(
            "connector",
            "Events a second that Spark reads and writes, by format",
            [
                Panel(f"{way}, events/s", {NAMES[who]: {"": rate} for who, rate in said.items()})
                for way in ("read", "write")
                if (said := find(result, f"{way}_events_per_s"))
            ],
        )
    )
    return section


def nexmark(result: Result) -> Section:
    section = Section(
        "Nexmark", "Its queries as streaming SQL; chains of streams are counted whole, with their starts."
    )
    keys = ("events_read", "events_per_s", "cpu_s_per_million", "seconds", "rows", "exact")
    head = ["", "events read", "events/s", "CPU s per million", "seconds", "rows", "exact"]
    queries: dict[str, dict[str, Any]] = find(result, "queries") or {}
    section.tables.append(Table(head, [[name, *(one.get(key) for key in keys)] for name, one in queries.items()]))
    return section


def windows(result: Result) -> Section:
    section = Section(
        "Windows, against other engines",
        "Count, sum and maximum per key and window of 5 seconds into PostgreSQL, the same events for everybody.",
    )
    engines: dict[str, dict[str, Any]] = find(result, "engines") or {}
    there = {who: said for who, said in engines.items() if "unavailable" not in said}
    cpu = {who: said["engine_cpu_s_per_million"] + said["postgresql_cpu_s_per_million"] for who, said in there.items()}
    head = ["", "version", "events", "events/s", "CPU s per million: engine", "PostgreSQL"]
    rows = [
        [
            NAMES[who],
            ", ".join(f"{package} {version}" for package, version in said.get("versions", {}).items()),
            *(said[key] for key in ("events", "events_per_s")),
            *(said[key] for key in ("engine_cpu_s_per_million", "postgresql_cpu_s_per_million")),
        ]
        for who, said in there.items()
    ]
    section.tables.append(Table(head, rows))
    section.notes += [f"{NAMES[who]}: {said['note']}" for who, said in there.items() if said.get("note")]
    section.notes += _unavailable(engines)
    section.plots.append(
        Plot(
            "windows",
            "Events a second into windows in PostgreSQL, and what a million cost, by engine",
            [
                Panel("events/s", {NAMES[who]: {"": said["events_per_s"]} for who, said in there.items()}, log_y=True),
                Panel("CPU s per million", {NAMES[who]: {"": spent} for who, spent in cpu.items()}, log_y=True),
            ],
        )
    )
    for peer in there:
        if peer != "penstock" and "penstock" in there:
            rates = (there[who]["events_per_s"] for who in ("penstock", peer))
            ours, theirs = rates
            section.compare("windows", "events/s", ours, peer, theirs)
            section.compare("windows", "CPU s per million", cpu["penstock"], peer, cpu[peer], more_is_better=False)
    return section


def scaling(result: Result) -> Section:
    name, curve = next(iter((find(result, "curves") or {"": {"x": "", "what": "", "points": []}}).items()))
    points: list[dict[str, Any]] = curve["points"]
    section = Section(f"Scaling: {name}", curve["what"])
    if not points:
        return section
    columns = [key for key in points[0] if key != "x"]
    rates = [key for key in columns if key.endswith("events_per_s")]
    head = [_words(key) for key in columns]
    section.tables.append(Table([curve["x"], *head], [[f"{p['x']:,}", *(p[key] for key in columns)] for p in points]))

    def panel(title: str, keys: list[str]) -> Panel:
        series = {_words(key): [(point["x"], point[key]) for point in points] for key in keys}
        return Panel(title, series, curve["x"], log_x=True)

    section.plots.append(
        Plot(
            f"scaling-{name}",
            f"Events a second, and what a million cost, by number of {curve['x']}",
            [panel("events/s", rates), panel("CPU s per million", ["cpu_s_per_million"])],
        )
    )
    return section


def _words(key: str) -> str:
    words = key.replace("cpu_s_per_million", "CPU s per million").replace("events_per_s", "events/s")
    return words.replace("_", " ").strip()


_SECTIONS: dict[str, Callable[[Result], Section]] = {
    "log": log,
    "ingest": ingest,
    "drain": drain,
    "windows": windows,
    "freshness": freshness,
    "gate": gate,
    "e2e": e2e,
    "day": day,
    "connector": connector,
    "nexmark": nexmark,
}


def sections(results: Mapping[str, Result], names: Iterable[str]) -> dict[str, Section]:
    """The sections for those results that are there, in the order of the names."""
    return {
        name: (scaling if name.startswith("scaling-") else _SECTIONS[name])(results[name])
        for name in names
        if name in results
    }


def _figures(result: Result, wanted: dict[str, tuple[str, ...]]) -> Table:
    found = {label: find(result, *path) for label, path in wanted.items()}
    return Table(["", "figure"], [[label, value] for label, value in found.items() if value is not None])


def _unavailable(peers: dict[str, dict[str, Any]]) -> list[str]:
    return [
        f"{NAMES[who]} was not measured: {said['unavailable']}" for who, said in peers.items() if "unavailable" in said
    ]
