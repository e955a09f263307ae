"""``penstock sql``: run or check a file of SQL statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import INTERRUPTED, command
from penstock.cli.command_session import CommandSession
from penstock.cli.commands.run import Conf, Master, PyFiles, Report, require_spark, run_options, spark_settings
from penstock.cli.program_loader import modules_next_to
from penstock.core.errors import InvalidRequest
from penstock.core.formatting import counted

if TYPE_CHECKING:
    from penstock.engine.query import Query
    from penstock.stream.sinks import SinkBinding
    from penstock.stream.statements.application import Application
    from penstock.stream.statements.commands import CommandStatement


root = typer.Typer()

_MAX_PREVIEW_EVENTS = 100_000
#: Options that would apply again whenever a stored view is started.
_NOT_STORED = ("reset", "rebuild", "available_now", "flush")


@command(
    root,
    "sql",
    examples=[
        "penstock sql pipeline.sql --check",
        "penstock sql pipeline.sql --preview 100",
        "penstock sql pipeline.sql",
        "penstock sql pipeline.sql --available-now --flush",
        "penstock sql --stored",
        "penstock sql 'SHOW MATERIALIZED VIEWS'",
        "penstock sql 'EXPLAIN SELECT customer, count(*) AS orders FROM orders GROUP BY customer'",
    ],
    options=run_options,
)
def sql(
    session: CommandSession,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="A file of statements that define queues, tables, queries and sinks; or SHOW, EXPLAIN or DROP.",
            show_default=False,
        ),
    ] = None,
    stored: Annotated[
        bool,
        typer.Option("--stored", help="Run the views that were created in the console, instead of a file."),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Print the plan without running it. Needs neither Spark nor a database.")
    ] = False,
    preview: Annotated[
        int | None,
        typer.Option(
            "--preview",
            min=1,
            max=_MAX_PREVIEW_EVENTS,
            metavar="N",
            help="Print the rows that each query computes from the newest N events of its queues. Stores nothing.",
            show_default=False,
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    py_files: PyFiles = None,
    report: Report = 60.0,
    **options: Any,
) -> None:
    """Run the queries and sinks of a file of SQL statements until Ctrl-C.

    Missing queues are created first. All queries run in one Spark application. Each continues from its last commit.

    SHOW, EXPLAIN and DROP are run at once. They are given as text, or in a file without other statements.

    With --stored, run all views that were created in the console. New ones start within a second, deleted ones stop,
    and one that fails is tried again. Several such processes stand by for each other.
    """
    from penstock.stream.definition import Definition
    from penstock.stream.statements.commands import has_commands, parse_commands
    from penstock.stream.statements.statement_parser import parse_application

    if stored:
        if file is not None or check or preview is not None:
            raise typer.BadParameter(
                "--stored runs the views in the database: leave out the file, --check and --preview"
            )
        _run_stored(session, report, master, spark_settings(conf, py_files), run_options(**options))
        return
    if file is None:
        raise typer.BadParameter("give a file of statements, or --stored to run the views that the console created")
    statements, name = _read_statements(file)
    if has_commands(statements, name):
        if check or preview is not None:
            raise typer.BadParameter("SHOW, EXPLAIN and DROP have neither a plan nor a preview: leave out the option")
        _run_commands(session, parse_commands(Definition, statements, name))
        return
    if not name:
        raise typer.BadParameter(
            f"{statements!r} does not exist: the argument is a file of statements, or a text of SHOW, EXPLAIN or DROP. "
            f"To run a statement on the database, use `penstock db psql -- -c {quote(statements)}`"
        )
    with modules_next_to(file):
        if check:
            application = parse_application(Definition, statements, name)
            _bind_sinks(application)
            _print_plan(session, application)
            return
        from penstock.engine.stream import Stream

        application = parse_application(Stream, statements, name, has_drafts=preview is not None)
        require_spark()
        if preview is not None:
            _preview(session, application, preview, master, spark_settings(conf, py_files))
            return
        chosen = {"master": master, "spark_conf": spark_settings(conf, py_files), **run_options(**options)}
        try:
            _run(session, application, file, report, chosen)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def _read_statements(file: Path) -> tuple[str, str]:
    """Return the text of a file and its name, or the argument itself, without a name, if it is a text."""
    if not file.exists() and any(character.isspace() for character in str(file)):
        return str(file), ""
    if not file.is_file():
        raise typer.BadParameter(f"{str(file)!r} {'is not a file' if file.exists() else 'does not exist'}")
    try:
        return file.read_text(), file.name
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{str(file)!r} is not text") from None


def _run_commands(session: CommandSession, statements: Sequence[CommandStatement]) -> None:
    import asyncio

    from penstock.cli.sql_commands import run_commands

    asyncio.run(run_commands(session, statements))


def _print_plan(session: CommandSession, application: Application) -> None:
    from penstock.stream.fingerprint import describe

    if session.out.json:
        session.out.document(
            {
                "queues": list(application.queues),
                "references": list(application.references),
                "queries": {name: describe(query.stream) for name, query in application.queries.items()},
                "sinks": {name: {"queue": sink.queue, "to": sink.to} for name, sink in application.sinks.items()},
            }
        )
        return
    for queue in application.queues.values():
        session.out.text(f"queue {queue.name}")
    for name in application.references:
        session.out.text(f"reference {name}")
    for query in application.queries.values():
        session.out.text(f"query {query.name}")
        for line in describe(query.stream):
            session.out.text(f"  {line}")
    for sink in application.sinks.values():
        session.out.text(f"sink {sink.name}: {sink.queue} to {sink.to}")


def _preview(
    session: CommandSession, application: Application, newest: int, master: str | None, conf: dict[str, str]
) -> None:
    from warnings import catch_warnings

    from penstock.core import json
    from penstock.engine.spark.spark_session import spark_session

    settings = session.settings()
    with session.out.spinner("Starting Spark"):
        spark_session(master=master, conf=conf)
    previews: dict[str, dict[str, Any]] = {}
    for query in application.queries_in_order():
        stream: Any = query.stream
        with catch_warnings(record=True) as warnings:
            rows = stream.preview(newest, settings=settings)
        previews[query.name] = {"rows": rows, "warnings": [str(warning.message) for warning in warnings]}
    if session.out.json:
        session.out.document(previews)
        return
    for name, preview in previews.items():
        columns = list(dict.fromkeys(column for row in preview["rows"] for column in row))
        cells = [[_cell(json.encode(row.get(column)).decode()) for column in columns] for row in preview["rows"]]
        session.out.table(columns, cells, title=f"{name}: {counted(len(cells), 'row')}")
        for warning in preview["warnings"]:
            session.out.hint(warning)


def _cell(text: str) -> str:
    return text[1:-1] if text.startswith('"') else text


def _run(
    session: CommandSession, application: Application, file: Path, report_seconds: float, options: dict[str, Any]
) -> None:
    import asyncio

    from penstock.cli.run_queries import create_queues, run_queries

    if not application.queries:
        raise InvalidRequest(f"{file.name} has no query: add one, such as INSERT INTO totals SELECT ...")
    settings = session.settings()
    bindings = _bind_sinks(application)
    asyncio.run(create_queues(session, application))
    starters: list[Callable[[], Query]] = []
    for definition in application.queries_in_order():
        stream: Any = replace(
            definition.stream, sink_bindings=tuple(_sinks_of_query(definition.name, application, bindings))
        )
        starters.append(partial(stream.start, definition.name, settings=settings, **{**definition.options, **options}))
    # With --available-now, a query that reads the output of another starts after that one has ended.
    rounds = [[starter] for starter in starters] if options.get("available_now") else [starters]
    for batch in rounds:
        run_queries(batch, session.out, report_seconds)


def _run_stored(
    session: CommandSession, report_seconds: float, master: str | None, conf: dict[str, str], options: dict[str, Any]
) -> None:
    from penstock.cli.run_stored import run_stored

    refused = [f"--{name.replace('_', '-')}" for name in _NOT_STORED if name in options]
    if refused:
        raise typer.BadParameter(f"--stored runs all views, until it is stopped: leave out {', '.join(refused)}")
    require_spark()
    try:
        run_stored(session, report_seconds, master, conf, options)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _sinks_of_query(name: str, application: Application, bindings: Sequence[SinkBinding]) -> Iterator[SinkBinding]:
    """Yield the sinks that run in the driver of a query.

    A sink runs with the last query that writes to its queue. If no query writes to it, it runs with the last query.
    """
    queries = application.queries_in_order()
    for binding in bindings:
        writers = [query for query in queries if query.stream.sink == binding.queue] or queries
        if writers[-1].name == name:
            yield binding


def _bind_sinks(application: Application) -> list[SinkBinding]:
    from penstock.sinks.delivery.sinks import read_sink_options
    from penstock.sinks.spec import read_sink
    from penstock.stream.sinks import SinkBinding

    bindings = []
    for sink in application.sinks.values():
        try:
            read_sink_options(sink.options)
            bindings.append(SinkBinding(sink.queue, read_sink(sink.to), sink.name, sink.options))
        except InvalidRequest as error:
            raise InvalidRequest(f"{sink.position}: {error}") from None
    return bindings
