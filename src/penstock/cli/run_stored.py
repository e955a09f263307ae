"""Runs the views that were created in the console."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.cli.command_session import CommandSession
from penstock.cli.run_queries import create_queues, print_status
from penstock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.engine.query import Query
    from penstock.engine.stored.stored_statements import StoredStatement


def run_stored(
    session: CommandSession, report_seconds: float, master: str | None, conf: dict[str, str], options: dict[str, Any]
) -> None:
    """Run all stored views until a signal."""
    from penstock.engine.spark.spark_session import spark_session
    from penstock.engine.stored.stored_queries import StoredQueries

    settings = session.settings()
    with session.out.spinner("Starting Spark"):
        spark_session(master=master, conf=conf)
    chosen = {"master": master, "spark_conf": conf, **options}
    report = partial(print_status, session.out)
    queries = StoredQueries(settings, partial(_start, session, chosen), session.out.hint, report, report_seconds)
    session.out.hint("Running the stored statements. New ones start by themselves.")
    queries.run()


def _start(session: CommandSession, options: dict[str, Any], stored: StoredStatement) -> Query:
    from penstock.engine.stream import Stream
    from penstock.stream.statements.statement_parser import parse_application

    application = parse_application(Stream, stored.statement, views_only=True)
    if list(application.queries) != [stored.name]:
        raise InvalidRequest(
            f"the stored statement {stored.name!r} does not create the view {stored.name!r} alone: delete it, "
            f"and create it again"
        )
    asyncio.run(create_queues(session, application))
    definition = application.queries[stored.name]
    stream: Any = definition.stream
    query: Query = stream.start(stored.name, settings=session.settings(), **{**definition.options, **options})
    return query
