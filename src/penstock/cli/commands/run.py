"""``penstock run``: run the streams of a Python file on Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import FAILED, INTERRUPTED, command
from penstock.cli.command_session import CommandSession
from penstock.cli.times import parse_duration, parse_time
from penstock.core.errors import ConfigurationError, InvalidRequest

if TYPE_CHECKING:
    from penstock.cli.program_loader import Program
    from penstock.engine.stream import Stream

root = typer.Typer()
_spark_option: Any = partial(typer.Option, rich_help_panel="Spark")
_metrics_option: Any = partial(typer.Option, rich_help_panel="Metrics")
_stream_option: Any = partial(typer.Option, rich_help_panel="Streams that the file defines but does not run")

Master = Annotated[
    str | None, _spark_option(metavar="URL", help="The Spark master.", show_default="local[*]: in this process")
]
Conf = Annotated[
    list[str] | None,
    _spark_option("--conf", metavar="KEY=VALUE", help="A Spark setting; may be repeated.", show_default=False),
]
PyFiles = Annotated[
    str | None,
    _spark_option(
        "--py-files",
        metavar="FILES",
        help="Comma-separated Python files and zipped packages to send to the executors.",
        show_default=False,
    ),
]
Report = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="How often to print the status of each query; 0: never.")
]

MetricsPort = Annotated[
    int | None,
    _metrics_option(
        min=0,
        max=65535,
        metavar="PORT",
        help="Serve metrics on this port, for Prometheus and as JSON; 0 selects a free port.",
        show_default="none",
    ),
]
MetricsHost = Annotated[
    str,
    _metrics_option(
        metavar="ADDRESS", help="The address of the metrics port. Other addresses than loopback require an API key."
    ),
]


def run_options(
    reset: Annotated[
        bool, _stream_option("--reset", help="Start over: delete the windows, history and positions.")
    ] = False,
    rebuild: Annotated[
        bool,
        _stream_option(
            "--rebuild",
            help="Compute the new version of a changed view beside the old one, and switch once it has caught up.",
        ),
    ] = False,
    begin: Annotated[
        str | None,
        _stream_option(
            "--from",
            metavar="POSITION",
            help="Where a new query starts: beginning, now, or a time (2026-01-31T12:00:00Z, 2h for two hours ago).",
            show_default="beginning",
        ),
    ] = None,
    strict: Annotated[
        bool,
        _stream_option(
            "--strict/--no-strict", help="Refuse fields that no recent event has, unless their type is declared."
        ),
    ] = True,
    available_now: Annotated[
        bool, _stream_option("--available-now", help="Process all available events, then exit.")
    ] = False,
    flush: Annotated[bool, _stream_option("--flush", help="Close all open windows at the end.")] = False,
    interval: Annotated[
        float | None,
        _stream_option(
            min=0,
            metavar="SECONDS",
            help="The minimum time between two cycles; 0 for the lowest latency.",
            show_default="0.3",
        ),
    ] = None,
    history_retention: Annotated[
        str | None,
        _stream_option(
            "--history-retention",
            metavar="DURATION",
            help="How long closed windows stay in the history: 36h, 400d.",
            show_default="400d",
        ),
    ] = None,
) -> dict[str, Any]:
    """Return the options that were given, in the form that the engine accepts."""
    values = {
        "reset": reset or None,
        "rebuild": rebuild or None,
        "subscription_from": begin if begin is None or begin in ("beginning", "now") else parse_time(begin),
        "strict": None if strict else False,
        "available_now": available_now or None,
        "flush": flush or None,
        "interval_seconds": interval,
        "history_retention_seconds": (
            None if history_retention is None else parse_duration(history_retention).total_seconds()
        ),
    }
    return {name: value for name, value in values.items() if value is not None}


@command(
    root,
    "run",
    examples=[
        "penstock run app.py",
        "penstock run app.py --query totals=orders_5s --from 2h",
        "penstock run app.py --metrics-port 9090",
        "penstock run app.py --master spark://10.0.0.5:7077 --conf spark.executor.memory=4g",
        "penstock run backfill.py --available-now --flush -- --day 2026-01-31",
    ],
    options=run_options,
)
def run(
    session: CommandSession,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A Python file."),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGUMENTS", help="The sys.argv of the file, after `--`.", show_default=False),
    ] = None,
    query: Annotated[
        list[str] | None,
        _stream_option(
            "--query",
            metavar="NAME=ID",
            help="Run the stream NAME under this query id, instead of its name; may be repeated.",
            show_default=False,
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    py_files: PyFiles = None,
    report: Report = 60.0,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    **options: Any,
) -> None:
    """Run the streams of a Python file until Ctrl-C.

    The file is executed like `python FILE`. If it does not run a stream itself, this command runs all streams at its
    top level in one Spark application. The variable name of a stream is its query id.

    On Ctrl-C or SIGTERM, each query finishes its current cycle and releases its lease, and the command exits with 0.
    A second signal exits immediately, also without losing data.
    """
    from penstock.cli.program_loader import ProgramFailed, main_program

    if not file.is_file():
        raise typer.BadParameter(f"{str(file)!r} {'is not a file' if file.exists() else 'does not exist'}")
    chosen = run_options(**options)
    ids, spark_conf = parse_pairs("--query", query), spark_settings(conf, py_files)
    require_spark()
    _export_database(session)
    try:
        with serve_metrics(session, metrics_host, metrics_port), main_program(file, arguments or []) as program:
            if master is not None or spark_conf:
                _start_spark(session, master, spark_conf)
            started_before = _count_started_queries()
            program.run()
            if _count_started_queries() > started_before:
                if chosen or ids:
                    session.out.warn(f"{file.name} runs its streams itself: the options for streams have no effect")
                return
            _run_streams(session, program, file, ids, report, {"master": master, "spark_conf": spark_conf, **chosen})
    except ProgramFailed as failure:
        sys.stderr.write(failure.report)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _run_streams(
    session: CommandSession,
    program: Program,
    file: Path,
    ids: Mapping[str, str],
    report_seconds: float,
    options: dict[str, Any],
) -> None:
    from penstock.cli.run_queries import run_queries

    streams = program.streams()
    if not streams:
        raise InvalidRequest(
            f"{file.name} neither defines a stream at its top level nor runs one: add "
            "orders = Stream.from_('orders')…, or call .run(…)"
        )
    queries = _assign_query_ids(streams, ids, file)
    settings = session.settings()
    starters = [partial(stream.start, name, settings=settings, **options) for name, stream in queries.items()]
    run_queries(starters, session.out, report_seconds)


def _assign_query_ids(streams: Mapping[str, Stream], ids: Mapping[str, str], file: Path) -> dict[str, Stream]:
    for name in ids:
        if name not in streams:
            raise typer.BadParameter(f"{file.name} has no stream {name!r}; it has {', '.join(streams)}")
    queries: dict[str, Stream] = {}
    for name, stream in streams.items():
        query_id = ids.get(name, name)
        if query_id in queries:
            raise typer.BadParameter(f"two streams have the query id {query_id!r}: give one another id with --query")
        queries[query_id] = stream
    return queries


def spark_settings(conf: list[str] | None, py_files: str | None) -> dict[str, str]:
    settings = parse_pairs("--conf", conf)
    if py_files is not None:
        for name in py_files.split(","):
            if "://" not in name and not Path(name).is_file():
                raise typer.BadParameter(f"--py-files {name!r} is not a file: give Python files and zipped packages")
        settings["spark.submit.pyFiles"] = py_files
    return settings


def parse_pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Parse the values of a repeatable NAME=VALUE option."""
    pairs: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise typer.BadParameter(f"{option} {text!r} is not a pair: write {option} name=value")
        pairs[name] = value
    return pairs


def require_spark() -> None:
    """Raise ConfigurationError if Spark is not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"streams need Spark, and {' and '.join(missing)} is not installed: "
            "run `pip install '.[spark]'` in a checkout of Penstock"
        )


@contextmanager
def serve_metrics(session: CommandSession, host: str, port: int | None) -> Iterator[None]:
    """Serve metrics on a port inside the block, if a port is given."""
    if port is None:
        yield
        return
    from penstock.server.process.metrics_port import metrics_port
    from penstock.server.settings import ServerSettings

    with metrics_port(ServerSettings.from_env(session.settings(), host=host, port=port)) as url:
        session.out.hint(f"Metrics on {url}")
        yield


def _export_database(session: CommandSession) -> None:
    """Export the database of the options to the environment, for clients that the file opens."""
    settings = session.settings()  # raises if they are invalid
    if session.options.database_url is not None or session.options.data_dir is not None:
        from penstock.core.settings import child_environment

        environment = child_environment(settings)
        os.environ.clear()
        os.environ.update(environment)


def _start_spark(session: CommandSession, master: str | None, conf: Mapping[str, str]) -> None:
    """Start Spark before the file runs, so that queries that it starts itself use these settings."""
    from penstock.engine.spark.spark_session import spark_session

    with session.out.spinner("Starting Spark"):
        spark_session(master=master, conf=conf)


def _count_started_queries() -> int:
    engine = sys.modules.get("penstock.engine.query")
    return 0 if engine is None else int(engine.Query.started)
