"""Shell completion of queue and query names."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from penstock.cli.session import CommandSession, SharedOptions

if TYPE_CHECKING:
    from penstock.db.pool import Database

_TIMEOUT_SECONDS = 2.0


def queue_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the queue names with this prefix; none if the database does not answer in time."""
    return _complete(ctx, incomplete, _read_queue_names)


def query_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the query names with this prefix; none if the database does not answer in time."""
    return _complete(ctx, incomplete, _read_query_names)


def _complete(ctx: typer.Context, incomplete: str, read_names: Callable[[Database], Awaitable[list[str]]]) -> list[str]:
    # An error message would be printed into the command line that the user is typing.
    with contextlib.suppress(Exception):
        import asyncio

        return [name for name in asyncio.run(_names(ctx, read_names)) if name.startswith(incomplete)]
    return []


async def _read_queue_names(database: Database) -> list[str]:
    from penstock.core.clock import Clock
    from penstock.log.catalog import Catalog

    return await Catalog(database.pool, Clock(), retry_seconds=1.0).names()


async def _read_query_names(database: Database) -> list[str]:
    async with database.connection() as conn:
        statement = "SELECT name FROM penstock.queries UNION SELECT name FROM penstock.shared_queries ORDER BY name"
        rows = await (await conn.execute(statement)).fetchall()
    return [name for (name,) in rows]


async def _names(ctx: typer.Context, read_names: Callable[[Database], Awaitable[list[str]]]) -> list[str]:
    import asyncio

    from penstock.db.embedded import server as embedded
    from penstock.db.pool import Database

    options = SharedOptions(ctx.params.get("database_url"), ctx.params.get("data_dir"), server=ctx.params.get("server"))
    session = CommandSession(options.override(ctx.find_object(SharedOptions) or SharedOptions()))
    if session.uses_server():
        async with asyncio.timeout(_TIMEOUT_SECONDS), session.transport() as transport:
            return [queue.name for queue in await transport.queues()] if read_names is _read_queue_names else []
    settings = session.settings()
    if settings.database_url is None:
        server = embedded.status(settings.data_dir)
        if server.state != "running":
            return []  # completion does not start a database
        settings = replace(settings, database_url=server.url)
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        async with Database(replace(settings, pool_size=1, auto_upgrade=False)) as database:
            return await read_names(database)
