"""A database with the roles that `penstock db roles` creates."""

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
from penstock.db import roles as db_roles
from penstock.db.embedded.postmaster import USER
from penstock.db.pool import open_pool
from penstock.db.roles import Roles
from tests.servers import TEMPLATE, Server


@dataclass(frozen=True)
class RoleUrls:
    """The URL of one database for each role."""

    roles: Roles
    owner: str
    server: str
    engine: str
    reader: str
    superuser: str


@contextmanager
def create_roles(pg: Server, before: Callable[[str], Coroutine[Any, Any, None]] | None = None) -> Iterator[RoleUrls]:
    """Create a database with its own roles: roles belong to the cluster, and tests run side by side.

    ``before`` runs as the owner before the roles exist.
    """
    suffix = uuid.uuid4().hex[:8]
    roles = Roles(f"server_{suffix}", f"engine_{suffix}", f"reader_{suffix}", f"pusher_{suffix}")
    with pg.fresh_database(TEMPLATE) as url:
        name = str(conninfo_to_dict(url)["dbname"])
        superuser = pg.url(name, USER)
        if before is not None:
            asyncio.run(before(url))
        asyncio.run(apply_roles(superuser, roles))
        yield RoleUrls(
            roles, url, pg.url(name, roles.server), pg.url(name, roles.engine), pg.url(name, roles.reader), superuser
        )
    with pg.superuser() as connection:
        for role in roles.names:
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


async def apply_roles(url: str, roles: Roles) -> None:
    """Do the same as `penstock db roles --apply`."""
    pool = await open_pool(Settings(database_url=url))
    async with pool, pool.connection() as conn:
        await db_roles.apply(conn, roles)
