"""Shell completion of queue and query names."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import LiteralString

import typer

from penstock.cli.command_session import CommandSession, SharedOptions

_TIMEOUT_SECONDS = 2.0
_QUEUES: LiteralString = "SELECT name FROM penstock.queues ORDER BY name"
_QUERIES: LiteralString = (
    "SELECT name FROM penstock.queries UNION SELECT name FROM penstock.client_queries ORDER BY name"
)


def queue_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the queue names with this prefix; none if the database does not answer in time."""
    return _complete(ctx, incomplete, _QUEUES)


def query_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the query names with this prefix; none if the database does not answer in time."""
    return _complete(ctx, incomplete, _QUERIES)


def _complete(ctx: typer.Context, incomplete: str, statement: LiteralString) -> list[str]:
    # An error message would be printed into the command line that the user is typing.
    with contextlib.suppress(Exception):
        import asyncio

        return [name for name in asyncio.run(_names(ctx, statement)) if name.startswith(incomplete)]
    return []


async def _names(ctx: typer.Context, statement: LiteralString) -> list[str]:
    import asyncio

    from penstock.db.embedded import server as embedded
    from penstock.db.pool import Database

    options = SharedOptions(ctx.params.get("database_url"), ctx.params.get("data_dir"), server=ctx.params.get("server"))
    session = CommandSession(options.override(ctx.find_object(SharedOptions) or SharedOptions()))
    if session.uses_server():
        async with asyncio.timeout(_TIMEOUT_SECONDS), session.transport() as transport:
            return [queue.name for queue in await transport.queues()] if statement == _QUEUES else []
    settings = session.settings()
    if settings.database_url is None:
        server = embedded.status(settings.data_dir)
        if server.state != "running":
            return []  # completion does not start a database
        settings = replace(settings, database_url=server.url)
    async with (
        asyncio.timeout(_TIMEOUT_SECONDS),
        Database(replace(settings, pool_size=1, auto_upgrade=False)) as database,
        database.connection() as conn,
    ):
        return [name for (name,) in await (await conn.execute(statement)).fetchall()]
