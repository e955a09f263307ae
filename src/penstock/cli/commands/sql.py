"""``penstock sql``: a file of statements, checked or run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import INTERRUPTED, command
from penstock.cli.commands.run import Conf, Master, PyFiles, Report, need_spark, run_options, spark_settings
from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.core.settings import Settings
    from penstock.engine.query import Query
    from penstock.stream.sink_binding import SinkBinding
    from penstock.stream.statements.application import Application


def register(app: typer.Typer) -> None:
    """Put ``sql`` among the commands."""
    command(
        app,
        "sql",
        examples=[
            "penstock sql pipeline.sql --check",
            "penstock sql pipeline.sql",
            "penstock sql pipeline.sql --available-now --flush",
        ],
        options=run_options,
    )(sql)


def sql(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Statements: queues, tables, queries, sinks.")],
    check: Annotated[
        bool, typer.Option("--check", help="Only say what would run; needs neither Spark nor a database.")
    ] = False,
    master: Master = None,
    conf: Conf = None,
    py_files: PyFiles = None,
    report: Report = 60.0,
    **options: Any,
) -> None:
    """Run the queries and sinks of a file of SQL statements until Ctrl-C.

    Queues that the file creates are made first, where they are not there. All queries run in one Spark, and each goes
    on where it was when it last ran.
    """
    from penstock.stream.definition import Definition
    from penstock.stream.statements.parser import parse_application

    if not file.is_file():
        raise typer.BadParameter(f"{str(file)!r} {'is no file' if file.exists() else 'does not exist'}")
    try:
        text = file.read_text()
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{str(file)!r} is not text") from None
    if check:
        application = parse_application(Definition, text, file.name)
        _flows(application)
        _show(session, application)
        return
    from penstock.engine.stream import Stream

    application = parse_application(Stream, text, file.name)
    need_spark()
    chosen = {"master": master, "spark_conf": spark_settings(conf, py_files), **run_options(**options)}
    try:
        _run(session, application, file, report, chosen)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _show(session: Session, application: Application) -> None:
    """What would run."""
    from penstock.stream.fingerprint import describe

    if session.out.json:
        session.out.document(
            {
                "queues": list(application.queues),
                "references": list(application.references),
                "queries": {name: describe(query.stream) for name, query in application.queries.items()},
                "sinks": {name: {"queue": s.queue, "to": s.to} for name, s in application.sinks.items()},
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


def _run(session: Session, application: Application, file: Path, every: float, options: dict[str, Any]) -> None:
    import asyncio

    from penstock.cli.foreground import report, run_together
    from penstock.core.errors import InvalidRequest
    from penstock.engine.status import StatusReporter

    if not application.queries:
        raise InvalidRequest(f"{file.name} has no query: write one, INSERT INTO totals SELECT ...")
    settings = session.settings()
    flows = _flows(application)
    asyncio.run(_make_queues(settings, application))
    starters: list[Callable[[], Query]] = []
    for wanted in application.queries_in_order():
        stream: Any = replace(wanted.stream, sink_bindings=tuple(_of_query(wanted.name, application, flows)))
        starters.append(partial(stream.start, wanted.name, settings=settings, **{**wanted.options, **options}))
    # What is there for a query that reads what another writes is there when that one has ended.
    rounds = [[starter] for starter in starters] if options.get("available_now") else [starters]
    for together in rounds:
        for query in run_together(together, session.out, every):
            report(session.out, query, StatusReporter(query.status))


def _of_query(name: str, application: Application, flows: Sequence[SinkBinding]) -> Iterator[SinkBinding]:
    """The sinks that run with a query, where it is driven: of the last one that writes to their queue, or the last."""
    queries = application.queries_in_order()
    for flow in flows:
        writers = [query for query in queries if query.stream.sink == flow.queue] or queries
        if writers[-1].name == name:
            yield flow


def _flows(application: Application) -> list[SinkBinding]:
    from penstock.core.errors import InvalidRequest
    from penstock.sinks.runner import read_sink_options
    from penstock.sinks.spec import read_sink
    from penstock.stream.sink_binding import SinkBinding

    flows = []
    for sink in application.sinks.values():
        try:
            read_sink_options(sink.options)
            flows.append(SinkBinding(sink.queue, read_sink(sink.to), sink.name, sink.options))
        except InvalidRequest as error:
            raise InvalidRequest(f"{sink.position}: {error}") from None
    return flows


async def _make_queues(settings: Settings, application: Application) -> None:
    """The queues that the file creates or writes to, unless they are there: a query waits for those that it reads."""
    from penstock.db.pool import Database
    from penstock.log.log import Log

    log = Log(Database(settings))
    await log.open()
    try:
        for queue in application.queues.values():
            if await log.catalog.find(queue.name) is None:
                await log.configure(
                    queue.name, queue.options, partitioning=queue.partitioning or "hash", partitions=queue.partitions
                )
        for query in application.queries.values():
            if query.stream.sink is not None and await log.catalog.find(query.stream.sink) is None:
                await log.configure(query.stream.sink, partitioning="hash", partitions=8)
    finally:
        await log.close()
