"""Names for the shell to complete."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import typer

from penstock.cli.session import Choices, Session

_PATIENCE_SECONDS = 2.0


def queue_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of the queues that begin so; none if the database does not answer at once."""
    # Whatever is wrong, a shell that completes is no place to say it.
    with contextlib.suppress(Exception):
        import asyncio

        return [name for name in asyncio.run(_names(ctx)) if name.startswith(incomplete)]
    return []


async def _names(ctx: typer.Context) -> list[str]:
    import asyncio

    from penstock.core.clock import Clock
    from penstock.db import embedded
    from penstock.db.pool import Database
    from penstock.log.catalog import Catalog

    given = Choices(ctx.params.get("database_url"), ctx.params.get("data_dir"))
    settings = Session(given.over(ctx.find_object(Choices) or Choices())).settings()
    if settings.database_url is None:
        running = embedded.status(settings.data_dir)
        if running.state != "running":
            return []  # not worth a start
        settings = replace(settings, database_url=running.url)
    async with asyncio.timeout(_PATIENCE_SECONDS):
        async with Database(replace(settings, pool_size=1, auto_upgrade=False)) as database:
            return await Catalog(database.pool, Clock(), retry_seconds=1.0).names()
