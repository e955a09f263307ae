"""Runs the statements ``SHOW``, ``EXPLAIN`` and ``DROP``, with the code of the commands that do the same."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from penstock.cli.command_session import CommandSession
from penstock.cli.commands.query import find_query, operator_line, print_queries, view_fields
from penstock.cli.commands.queue import print_queues
from penstock.core.errors import Conflict, NotFound
from penstock.stream.statements.commands import (
    CommandStatement,
    DropStatement,
    ExplainStatement,
    Listing,
    ShowStatement,
)

if TYPE_CHECKING:
    from penstock.engine.query_registry import QueryInfo
    from penstock.engine.views.view_size import ViewStatus
    from penstock.stream.definition import Definition


async def run_commands(session: CommandSession, statements: Sequence[CommandStatement]) -> None:
    for statement in statements:
        match statement:
            case ShowStatement(listing=Listing.QUEUES):
                await print_queues(session)
            case ShowStatement(listing=listing):
                await print_queries(session, views_only=listing is Listing.VIEWS)
            case DropStatement():
                await _drop(session, statement)
            case ExplainStatement(name=name, stream=None):
                await _explain_query(session, name)
            case ExplainStatement(name=name, stream=stream):
                assert stream is not None  # noqa: S101 - the case before
                await _explain_statement(session, name, stream)


async def _drop(session: CommandSession, statement: DropStatement) -> None:
    from penstock.engine.query_registry import Registry

    name = statement.name
    async with session.log() as log:
        registry = Registry(log)
        query = next((each for each in await registry.list() if each.name == name), None)
        if query is not None and not query.is_view:
            raise Conflict(f"{name!r} is a query and no view: `penstock query delete {quote(name)}` deletes it")
        deleted = await registry.delete(name)
    if not deleted and not statement.if_exists:
        raise NotFound(f"there is no view {name!r}: `penstock query list --views` lists the views")
    text = f"Dropped the view {name}." if deleted else f"There is no view {name}."
    session.out.result({"query": name, "deleted": deleted}, text)


async def _explain_query(session: CommandSession, name: str) -> None:
    from penstock.engine.views.view_size import read_view_status

    async with session.log() as log:
        query = await find_query(log, name)
        view = await read_view_status(log.database, query.id)
    lines = _operator_lines(query.description)
    others = [line for line in query.description if not line.startswith("view ")]
    if session.out.json:
        session.out.document(_document(query.name, lines, others, None if view is None else view.key, view))
        return
    _print_plan(session, f"{_kind(query)} {name}", [] if view is None else view_fields(view), lines, others)
    if view is not None and view.operators:
        session.out.section("State", "\n".join(map(operator_line, view.operators)))


async def _explain_statement(session: CommandSession, name: str, stream: Definition) -> None:
    from penstock.engine.query_registry import Registry
    from penstock.engine.source_views import resolve_views
    from penstock.stream.fingerprint import describe
    from penstock.stream.views.row_key import visible_key

    async with session.log() as log:
        stream = await resolve_views(log, Registry(log), stream, name)
    description = describe(stream)
    lines = _operator_lines(description)
    others = [line for line in description if not line.startswith("view ")]
    key = None if stream.view is None else visible_key(stream.view.root)
    if session.out.json:
        session.out.document(_document(name or None, lines, others, key, None))
        return
    title = f"{'Query' if stream.view is None else 'Materialized view'} {name}".strip()
    fields = [] if key is None else [("key", ", ".join(key) or "hidden")]
    _print_plan(session, title, fields, lines, others)


def _operator_lines(description: Sequence[str]) -> list[str]:
    """The operators of a view, each with its inputs indented below it."""
    return [line.removeprefix("view ") for line in description if line.startswith("view ")]


def _print_plan(
    session: CommandSession, title: str, fields: list[tuple[str, str]], operators: list[str], others: list[str]
) -> None:
    session.out.fields(title, fields)
    if operators:
        session.out.section("Operators", "\n".join(operators))
    if others:
        session.out.section("Definition" if operators else "Steps", "\n".join(others))


def _document(
    name: str | None,
    operators: list[str],
    others: list[str],
    key: Sequence[str] | None,
    view: ViewStatus | None,
) -> dict[str, Any]:
    state = None if view is None else [operator._asdict() for operator in view.operators]
    return {
        "query": name,
        "key": None if key is None else list(key),
        "operators": operators,
        "definition": others,
        "state": state,
    }


def _kind(query: QueryInfo) -> str:
    return "Materialized view" if query.is_view else "Query"
