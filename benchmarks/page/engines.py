"""The engine, its peers and its curves as sections."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.page.names import NAMES
from benchmarks.page.parts import Panel, Plot, Section, Table
from benchmarks.page.results import Result, find, unavailable


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
    section.notes += unavailable(engines)
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
            ours, theirs = (there[who]["events_per_s"] for who in ("penstock", peer))
            section.compare("windows", "events/s", ours, peer, theirs)
            section.compare("windows", "CPU s per million", cpu["penstock"], peer, cpu[peer], more_is_better=False)
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
    for name, setting in (("1000", "eager"), ("default", "by default")):
        for key in keys:
            unit = "cores" if key == "cores" else "ms"
            what = f"freshness at 1,000 events/s, {setting}{'' if key == 'cores' else f', {key[:3]}'}"
            ours, theirs = find(result, name, key), find(result, "plain_spark", key)
            section.compare(what, unit, ours, "plain_spark", theirs, more_is_better=False)
    return section


def connector(result: Result) -> Section:
    section = Section("The connector", '`format("penstock")` in Spark, beside files that hold the same events.')
    for way in ("read", "write"):
        rates: dict[str, float] = find(result, f"{way}_events_per_s") or {}
        cpu: dict[str, float] = find(result, "cpu_s_per_million", way) or {}
        section.tables.append(_rates_and_cpu(way, rates, cpu))
        # The quicker of our two ways, in both figures.
        ours = max((who for who in rates if who.startswith("penstock")), key=rates.__getitem__, default="")
        for peer in ("json", "parquet"):
            _compare_rates_and_cpu(section, f"{way} in Spark", rates, cpu, ours, peer)
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
        "Nexmark",
        "Its queries as streaming SQL, one after another in one JVM; chains of streams are counted whole, with their "
        "starts. The first query has the start of the JVM in it, and all that the JVM compiles for the first time: its "
        "figures are those of a cold start.",
    )
    keys = ("events_read", "events_per_s", "cpu_s_per_million", "seconds", "rows", "exact")
    head = ["", "events read", "events/s", "CPU s per million", "seconds", "rows", "exact"]
    queries: dict[str, dict[str, Any]] = find(result, "queries") or {}
    section.tables.append(Table(head, [[name, *(one.get(key) for key in keys)] for name, one in queries.items()]))
    return section


def joins(result: Result) -> Section:
    section = Section("Joins", "Pairs of two queues, by where events wait for each other.")
    rates: dict[str, float] = find(result, "events_per_s") or {}
    cpu: dict[str, float] = find(result, "cpu_s_per_million") or {}
    section.tables.append(_rates_and_cpu("", rates, cpu))
    for peer in ("state_store", "state_store_rocksdb"):
        _compare_rates_and_cpu(section, "join of two queues", rates, cpu, "penstock", peer)
    return section


def _rates_and_cpu(what: str, rates: dict[str, float], cpu: dict[str, float]) -> Table:
    rows = [[NAMES[who], rate, cpu.get(who)] for who, rate in rates.items()]
    return Table([what, "events/s", "CPU s per million"], rows)


def _compare_rates_and_cpu(
    section: Section, what: str, rates: dict[str, float], cpu: dict[str, float], ours: str, peer: str
) -> None:
    section.compare(what, "events/s", rates.get(ours), peer, rates.get(peer))
    section.compare(what, "CPU s per million", cpu.get(ours), peer, cpu.get(peer), more_is_better=False)


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
