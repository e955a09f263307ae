"""``penstock run``: the streams of a Python file, on Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import FAILED, INTERRUPTED, command
from penstock.cli.session import Session
from penstock.cli.times import parse_time

if TYPE_CHECKING:
    from penstock.cli.program_loader import Program
    from penstock.engine.stream import Stream

_SPARK = "Spark"
_METRICS = "Metrics"
_MODULE_STREAMS = "For streams that the file defines and does not run itself"

Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Where Spark runs.", rich_help_panel=_SPARK, show_default="local[*]: in this process"
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="A setting of Spark; may be given again.",
        rich_help_panel=_SPARK,
        show_default=False,
    ),
]
PyFiles = Annotated[
    str | None,
    typer.Option(
        "--py-files",
        metavar="FILES",
        help="Python files and zips of packages that the executors get from here; commas between them.",
        rich_help_panel=_SPARK,
        show_default=False,
    ),
]
Report = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="Say every so often what each query has done; 0: never.")
]

MetricsPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        metavar="PORT",
        help="Show metrics on this port, for Prometheus and as JSON; 0 takes a free one.",
        rich_help_panel=_METRICS,
        show_default="none",
    ),
]
MetricsHost = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS", help="Where; on any other address than loopback, with a key.", rich_help_panel=_METRICS
    ),
]


def run_options(
    reset: Annotated[
        bool,
        typer.Option("--reset", help="Begin anew: forget windows, history and place.", rich_help_panel=_MODULE_STREAMS),
    ] = False,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Where a query that is new begins: beginning, now, or a time (2026-01-31T12:00:00Z, 2h for two hours "
            "ago).",
            rich_help_panel=_MODULE_STREAMS,
            show_default="beginning",
        ),
    ] = None,
    available_now: Annotated[
        bool,
        typer.Option("--available-now", help="Process what is there, and end.", rich_help_panel=_MODULE_STREAMS),
    ] = False,
    flush: Annotated[
        bool,
        typer.Option("--flush", help="At the end, close every open window.", rich_help_panel=_MODULE_STREAMS),
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="At least so long from one cycle to the next; 0 for the lowest latency.",
            rich_help_panel=_MODULE_STREAMS,
            show_default="0.4",
        ),
    ] = None,
) -> dict[str, Any]:
    """What was said, as the engine takes it."""
    given = {
        "reset": reset or None,
        "subscription_from": None if begin is None else _place(begin),
        "available_now": available_now or None,
        "flush": flush or None,
        "interval_seconds": interval,
    }
    return {name: value for name, value in given.items() if value is not None}


def register(app: typer.Typer) -> None:
    """Put ``run`` among the commands."""
    command(
        app,
        "run",
        examples=[
            "penstock run app.py",
            "penstock run app.py --query totals=orders_5s --from 2h",
            "penstock run app.py --metrics-port 9090",
            "penstock run app.py --master spark://10.0.0.5:7077 --conf spark.executor.memory=4g",
            "penstock run backfill.py --available-now --flush -- --day 2026-01-31",
        ],
        options=run_options,
    )(run)


def run(
    session: Session,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A Python file."),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGUMENTS", help="What the file finds in sys.argv; after `--`.", show_default=False),
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option(
            "--query",
            metavar="NAME=ID",
            help="The stream of that name runs under this query id; may be given again. Without it: under its name.",
            rich_help_panel=_MODULE_STREAMS,
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

    The file is run as `python FILE` would. If it runs its streams itself, that is all. Otherwise every stream at its
    top level is run, under the name of its variable, all of them in one Spark.

    Ctrl-C and SIGTERM let each query finish the cycle that it is in and release its lease, and then this ends with 0.
    A second one ends it at once; nothing is lost then either.
    """
    from penstock.cli.program_loader import ProgramFailed, main_program

    if not file.is_file():
        raise typer.BadParameter(f"{str(file)!r} {'is no file' if file.exists() else 'does not exist'}")
    chosen = run_options(**options)
    ids, spark_conf = pairs("--query", query), spark_settings(conf, py_files)
    need_spark()
    _settle_database(session)
    try:
        with measured(session, metrics_host, metrics_port), main_program(file, arguments or []) as program:
            if master is not None or spark_conf:
                _start_spark(session, master, spark_conf)
            before = _queries_started()
            program.run()
            if _queries_started() > before:
                if chosen or ids:
                    session.out.warn(f"{file.name} runs its streams itself, so it says how, and not the command line")
                return
            _run_streams(session, program, file, ids, report, {"master": master, "spark_conf": spark_conf, **chosen})
    except ProgramFailed as failure:
        sys.stderr.write(failure.report)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _run_streams(
    session: Session, program: Program, file: Path, ids: Mapping[str, str], every: float, options: dict[str, Any]
) -> None:
    from penstock.cli.foreground import report, run_together
    from penstock.core.errors import InvalidRequest
    from penstock.engine.status import StatusReporter

    streams = program.streams()
    if not streams:
        raise InvalidRequest(
            f"{file.name} defines no stream at its top level, and runs none: write "
            "orders = Stream.from_('orders')… there, or call .run(…)"
        )
    queries = _named(streams, ids, file)
    settings = session.settings()
    starters = [partial(stream.start, name, settings=settings, **options) for name, stream in queries.items()]
    for query in run_together(starters, session.out, every):
        report(session.out, query, StatusReporter(query.status))


def _named(streams: Mapping[str, Stream], ids: Mapping[str, str], file: Path) -> dict[str, Stream]:
    """The streams by the id of the query that each is to be."""
    for name in ids:
        if name not in streams:
            raise typer.BadParameter(f"{file.name} has no stream {name!r}; it has {', '.join(streams)}")
    named: dict[str, Stream] = {}
    for name, stream in streams.items():
        if ids.get(name, name) in named:
            raise typer.BadParameter(f"two streams cannot both be query {ids.get(name, name)!r}")
        named[ids.get(name, name)] = stream
    return named


def spark_settings(conf: list[str] | None, py_files: str | None) -> dict[str, str]:
    """What Spark is started with."""
    settings = pairs("--conf", conf)
    if py_files is not None:
        for name in py_files.split(","):
            if "://" not in name and not Path(name).is_file():
                raise typer.BadParameter(f"--py-files {name!r} is no file: name Python files, and zips of packages")
        settings["spark.submit.pyFiles"] = py_files
    return settings


def pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """What was given as NAME=VALUE."""
    found: dict[str, str] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise typer.BadParameter(f"{option} {text!r} is no pair: write {option} name=value")
        found[name] = value
    return found


def _place(text: str) -> str | datetime:
    return text if text in ("beginning", "now") else parse_time(text)


def need_spark() -> None:
    """Refuse, in time and in words, where Spark is not installed."""
    from importlib.util import find_spec

    from penstock.core.errors import ConfigurationError

    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"streams need Spark, and {' and '.join(missing)} is not installed: pip install 'penstock[spark]'"
        )


@contextmanager
def measured(session: Session, host: str, port: int | None) -> Iterator[None]:
    """Show metrics on a port meanwhile, if one is named."""
    if port is None:
        yield
        return
    from penstock.server.process.metrics_port import metrics_port
    from penstock.server.settings import ServerSettings

    with metrics_port(ServerSettings.from_env(session.settings(), host=host, port=port)) as url:
        session.out.hint(f"Metrics on {url}")
        yield


def _settle_database(session: Session) -> None:
    """The file is to use the database that the command line names, also where it opens a client by itself."""
    from penstock.core.settings import LIBPQ_VARIABLES

    session.settings()  # refused here, if they are wrong
    choices = session.choices
    if choices.database_url is not None:
        os.environ["PENSTOCK_DATABASE_URL"] = choices.database_url
    elif choices.data_dir is not None:
        for name in ("PENSTOCK_DATABASE_URL", "DATABASE_URL", *LIBPQ_VARIABLES):
            os.environ.pop(name, None)
        os.environ["PENSTOCK_DATA_DIR"] = str(choices.data_dir.expanduser().absolute())


def _start_spark(session: Session, master: str | None, conf: Mapping[str, str]) -> None:
    """Before the file runs, so that queries which it starts itself run there too."""
    from penstock.engine.spark.session import spark_session

    with session.out.busy("Starting Spark"):
        spark_session(master=master, conf=conf)


def _queries_started() -> int:
    """How many queries this process has started."""
    engine = sys.modules.get("penstock.engine.query")
    return 0 if engine is None else int(engine.Query.started)
