"""Names for the shell to complete."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from penstock.cli.session import Choices, Session

if TYPE_CHECKING:
    from penstock.db.pool import Database

_PATIENCE_SECONDS = 2.0


def queue_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of the queues that begin so; none if the database does not answer at once."""
    return _completed(ctx, incomplete, _queues)


def query_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The same for queries."""
    return _completed(ctx, incomplete, _queries)


def _completed(ctx: typer.Context, incomplete: str, names_in: Callable[[Database], Awaitable[list[str]]]) -> list[str]:
    # Whatever is wrong, a shell that completes is no place to say it.
    with contextlib.suppress(Exception):
        import asyncio

        return [name for name in asyncio.run(_names(ctx, names_in)) if name.startswith(incomplete)]
    return []


async def _queues(database: Database) -> list[str]:
    from penstock.core.clock import Clock
    from penstock.log.catalog import Catalog

    return await Catalog(database.pool, Clock(), retry_seconds=1.0).names()


async def _queries(database: Database) -> list[str]:
    async with database.connection() as conn:
        statement = "SELECT name FROM penstock.queries UNION SELECT name FROM penstock.shared_queries ORDER BY name"
        rows = await (await conn.execute(statement)).fetchall()
    return [name for (name,) in rows]


async def _names(ctx: typer.Context, names_in: Callable[[Database], Awaitable[list[str]]]) -> list[str]:
    import asyncio

    from penstock.db.embedded import server as embedded
    from penstock.db.pool import Database

    given = Choices(ctx.params.get("database_url"), ctx.params.get("data_dir"), server=ctx.params.get("server"))
    session = Session(given.over(ctx.find_object(Choices) or Choices()))
    if session.asks_server():
        async with asyncio.timeout(_PATIENCE_SECONDS), session.transport() as transport:
            return [queue.name for queue in await transport.queues()] if names_in is _queues else []
    settings = session.settings()
    if settings.database_url is None:
        running = embedded.status(settings.data_dir)
        if running.state != "running":
            return []  # not worth a start
        settings = replace(settings, database_url=running.url)
    async with asyncio.timeout(_PATIENCE_SECONDS):
        async with Database(replace(settings, pool_size=1, auto_upgrade=False)) as database:
            return await names_in(database)
