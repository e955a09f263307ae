"""A database with the roles that `penstock db roles` makes, for tests."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from penstock.core.settings import Settings
from penstock.db import roles as database_roles
from penstock.db.embedded import server as embedded
from penstock.db.pool import open_pool
from penstock.db.roles import Roles
from tests.servers import TEMPLATE, Server


@dataclass(frozen=True)
class Guarded:
    """One database, and how each role gets to it."""

    roles: Roles
    owner: str
    server: str
    engine: str
    reader: str
    superuser: str


@contextmanager
def guarded(pg: Server, before: Callable[[str], Coroutine[Any, Any, None]] | None = None) -> Iterator[Guarded]:
    """A fresh database with roles of its own: they are the cluster's, and tests run side by side.

    ``before`` is what the owner does while there are none.
    """
    mark = uuid.uuid4().hex[:8]
    roles = Roles(f"server_{mark}", f"engine_{mark}", f"reader_{mark}")
    with pg.fresh_database(TEMPLATE) as url:
        name = str(conninfo_to_dict(url)["dbname"])
        superuser = pg.url(name, embedded.USER)
        if before is not None:
            asyncio.run(before(url))
        asyncio.run(apply(superuser, roles))
        yield Guarded(
            roles, url, pg.url(name, roles.server), pg.url(name, roles.engine), pg.url(name, roles.reader), superuser
        )
    with pg.superuser() as connection:
        for role in (roles.server, roles.engine, roles.reader):
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


async def apply(url: str, roles: Roles) -> None:
    """What `penstock db roles --apply` does."""
    pool = await open_pool(Settings(database_url=url))
    async with pool, pool.connection() as conn:
        await database_roles.apply(conn, roles)
