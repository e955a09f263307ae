"""Sections of the engine, its peers and its scaling curves."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.page.names import NAMES
from benchmarks.page.parts import Panel, Plot, Section, Table
from benchmarks.page.results import Result, find, unavailable


def drain(result: Result) -> Section:
    section = Section(
        "Draining into windows",
        "Throughput of draining a queue into live rows and closed windows after a warm-up, and that of plain "
        "Structured Streaming.",
    )
    drains: dict[str, list[dict[str, float]]] = find(result, "drains") or {}
    rates = {name: median(run["events_per_s"] for run in runs) for name, runs in drains.items()}
    engine = {name: median(run["engine_cpu_s_per_million"] for run in runs) for name, runs in drains.items()}
    server = {name: median(run["postgresql_cpu_s_per_million"] for run in runs) for name, runs in drains.items()}
    labels = {
        **NAMES,
        "key_queue": "Penstock, 1,000 key partitions",
        "python_map": "Penstock, with a Python UDF",
        "million_keys": "Penstock, 1,000,000 keys",
    } | {name: f"Penstock, {int(name[8:]):,} events" for name in drains if name.startswith("scaling_")}
    head = ["", "events", "events/s", "CPU s per million: engine", "PostgreSQL"]
    rows = [[labels[name], drains[name][0]["events"], rates[name], engine[name], server[name]] for name in drains]
    section.tables.append(Table(head, rows))
    compared = [name for name in ("penstock", "plain_spark", "plain_spark_one_batch") if name in drains]
    section.plots.append(
        Plot(
            "drain",
            "Events/s and CPU seconds per million events of draining into windows, Penstock and plain Spark",
            [
                Panel("events/s", {NAMES[name]: {"": rates[name]} for name in compared}),
                Panel("CPU s per million", {NAMES[name]: {"": engine[name] + server[name]} for name in compared}),
            ],
        )
    )
    for peer in compared[1:]:
        section.compare("drain into windows", "events/s", rates.get("penstock"), peer, rates[peer])
        if "penstock" in drains:
            ours, theirs = (engine[name] + server[name] for name in ("penstock", peer))
            section.compare("drain into windows", "CPU s per million", ours, peer, theirs, more_is_better=False)
    return section


def windows(result: Result) -> Section:
    section = Section(
        "Windows: other engines",
        "Count, sum and maximum per key and window of 5 seconds into PostgreSQL, with the same events for all engines.",
    )
    engines: dict[str, dict[str, Any]] = find(result, "engines") or {}
    measured = {name: run for name, run in engines.items() if "unavailable" not in run}
    cpu = {
        name: run["engine_cpu_s_per_million"] + run["postgresql_cpu_s_per_million"] for name, run in measured.items()
    }
    head = ["", "version", "events", "events/s", "CPU s per million: engine", "PostgreSQL"]
    rows = [
        [
            NAMES[name],
            ", ".join(f"{package} {version}" for package, version in run.get("versions", {}).items()),
            *(run[key] for key in ("events", "events_per_s")),
            *(run[key] for key in ("engine_cpu_s_per_million", "postgresql_cpu_s_per_million")),
        ]
        for name, run in measured.items()
    ]
    section.tables.append(Table(head, rows))
    section.notes += [f"{NAMES[name]}: {run['note']}" for name, run in measured.items() if run.get("note")]
    section.notes += unavailable(engines)
    section.plots.append(
        Plot(
            "windows",
            "Events/s and CPU seconds per million events of windows in PostgreSQL, by engine",
            [
                Panel(
                    "events/s", {NAMES[name]: {"": run["events_per_s"]} for name, run in measured.items()}, log_y=True
                ),
                Panel("CPU s per million", {NAMES[name]: {"": spent} for name, spent in cpu.items()}, log_y=True),
            ],
        )
    )
    for peer in measured:
        if peer != "penstock" and "penstock" in measured:
            ours, theirs = (measured[name]["events_per_s"] for name in ("penstock", peer))
            section.compare("windows", "events/s", ours, peer, theirs)
            section.compare("windows", "CPU s per million", cpu["penstock"], peer, cpu[peer], more_is_better=False)
    return section


def freshness(result: Result) -> Section:
    section = Section("Freshness", "Latency from the call of a push to the SQL row that includes the event.")
    labels = {
        "1000": "Penstock, no pause between cycles, 1,000 events/s",
        "20000": "Penstock, no pause between cycles, 20,000 events/s",
        "default": "Penstock, default setting, 1,000 events/s",
        "total": "Penstock, a running total, no pause between cycles, 1,000 events/s",
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
        Plot("freshness", "Latency percentiles from push to row, in milliseconds", [Panel("milliseconds", percentiles)])
    )
    for name, setting in (("1000", "no pause"), ("default", "default setting")):
        for key in keys:
            unit = "cores" if key == "cores" else "ms"
            measurement = f"freshness at 1,000 events/s, {setting}{'' if key == 'cores' else f', {key[:3]}'}"
            ours, theirs = find(result, name, key), find(result, "plain_spark", key)
            section.compare(measurement, unit, ours, "plain_spark", theirs, more_is_better=False)
    return section


def totals(result: Result) -> Section:
    section = Section("Running totals", "Throughput of draining a queue into a materialized view with a row per key.")
    drains = {name: drain for name, drain in result.items() if name.startswith("keys_")}
    keys = ("events", "events_per_s", "engine_cpu_s_per_million", "postgresql_cpu_s_per_million")
    rows = [
        [f"{int(name.removeprefix('keys_')):,} keys", *(drain[key] for key in keys)] for name, drain in drains.items()
    ]
    section.tables.append(Table(["", "events", "events/s", "CPU s per million: engine", "PostgreSQL"], rows))
    return section


def connector(result: Result) -> Section:
    section = Section("The connector", '`format("penstock")` in Spark, compared with files of the same events.')
    for operation in ("read", "write"):
        rates: dict[str, float] = find(result, f"{operation}_events_per_s") or {}
        cpu: dict[str, float] = find(result, "cpu_s_per_million", operation) or {}
        section.tables.append(_rates_and_cpu(operation, rates, cpu))
        # Both figures are those of the faster of the two Penstock formats.
        ours = max((name for name in rates if name.startswith("penstock")), key=rates.__getitem__, default="")
        for peer in ("json", "parquet"):
            _compare_rates_and_cpu(section, f"{operation} in Spark", rates, cpu, ours, peer)
    section.plots.append(
        Plot(
            "connector",
            "Events/s that Spark reads and writes, by format",
            [
                Panel(f"{operation}, events/s", {NAMES[name]: {"": rate} for name, rate in by_format.items()})
                for operation in ("read", "write")
                if (by_format := find(result, f"{operation}_events_per_s"))
            ],
        )
    )
    return section


def joins(result: Result) -> Section:
    section = Section("Joins", "A join of two queues, by the location of its state.")
    rates: dict[str, float] = find(result, "events_per_s") or {}
    cpu: dict[str, float] = find(result, "cpu_s_per_million") or {}
    section.tables.append(_rates_and_cpu("", rates, cpu))
    for peer in ("state_store", "state_store_rocksdb"):
        _compare_rates_and_cpu(section, "join of two queues", rates, cpu, "penstock", peer)
    return section


def _rates_and_cpu(title: str, rates: dict[str, float], cpu: dict[str, float]) -> Table:
    rows = [[NAMES[name], rate, cpu.get(name)] for name, rate in rates.items()]
    return Table([title, "events/s", "CPU s per million"], rows)


def _compare_rates_and_cpu(
    section: Section, measurement: str, rates: dict[str, float], cpu: dict[str, float], ours: str, peer: str
) -> None:
    section.compare(measurement, "events/s", rates.get(ours), peer, rates.get(peer))
    section.compare(measurement, "CPU s per million", cpu.get(ours), peer, cpu.get(peer), more_is_better=False)


def scaling(result: Result) -> Section:
    name, curve = next(iter((find(result, "curves") or {"": {"x": "", "what": "", "points": []}}).items()))
    points: list[dict[str, Any]] = curve["points"]
    dimension = "key partitions" if curve["x"] == "partitions" else curve["x"]
    section = Section(f"Scaling: {dimension or name}", curve["what"])
    if not points:
        return section
    columns = [key for key in points[0] if key != "x"]
    rates = [key for key in columns if key.endswith("events_per_s")]
    head = [_label(key) for key in columns]
    section.tables.append(Table([dimension, *head], [[f"{p['x']:,}", *(p[key] for key in columns)] for p in points]))

    def panel(title: str, keys: list[str]) -> Panel:
        series = {_label(key): [(point["x"], point[key]) for point in points] for key in keys}
        return Panel(title, series, dimension, log_x=True)

    section.plots.append(
        Plot(
            f"scaling-{name}",
            f"Events/s and CPU seconds per million events, by number of {dimension}",
            [panel("events/s", rates), panel("CPU s per million", ["cpu_s_per_million"])],
        )
    )
    return section


def _label(key: str) -> str:
    label = key.replace("cpu_s_per_million", "CPU s per million").replace("events_per_s", "events/s")
    return label.replace("postgresql", "PostgreSQL").replace("_of_each", " per group").replace("_", " ").strip()
