"""Database roles of Penstock's processes, each with the least rights that it needs.

Only upgrades need the owner of the schemas. Functions with the rights of the owner create and drop the tables of
segments, so the role of the server owns nothing, and the role of the engine only its results. Roles of applications can
be members of a fourth role, which may push from SQL and nothing else.
``sql/role_runtime.sql`` lists the rights; :mod:`penstock.db.readonly_login` has those of the read-only role.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import psycopg

from penstock.core.errors import DatabaseError, InvalidName
from penstock.db.pool import Connection
from penstock.db.readonly_login import READER_ROLE, render_reader_role
from penstock.db.statements import Statements, fill_names

_roles = Statements("penstock.db", "role_runtime.sql")
_sql = Statements("penstock.db", "readonly_login.sql")
# Names that need no quoting, because they are also used in connection strings and configuration files.
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class Roles:
    """Names of the roles."""

    server: str = "penstock_server"
    engine: str = "penstock_engine"
    reader: str = READER_ROLE
    #: A role that nobody logs in with: it is granted to roles of applications that push from SQL.
    pusher: str = "penstock_pusher"

    @property
    def names(self) -> tuple[str, ...]:
        return self.server, self.engine, self.reader, self.pusher

    def __post_init__(self) -> None:
        for name in self.names:
            if not _NAME.fullmatch(name) or name.startswith("pg_"):
                raise InvalidName(
                    f"a role cannot be named {name[:80]!r}: use up to 63 lower-case letters, digits and underscores, "
                    "not starting with a digit or pg_"
                )
        if len(set(self.names)) < len(self.names):
            raise InvalidName("the server, the engine, the reader and the pusher need different roles: use four names")


async def render_statements(conn: Connection, roles: Roles) -> str:
    """Return the SQL that creates the roles and grants their rights, for the database of the connection."""
    row = await (await conn.execute(_sql["owner_and_database"])).fetchone()
    if row is None:
        raise DatabaseError("this database has no Penstock schema yet: run `penstock db upgrade` as its owner")
    owner, database = row
    if owner in roles.names:
        raise InvalidName(f"{owner!r} owns the schemas and has all rights on them: choose another name for the role")
    names = {
        "owner": owner,
        "database": database,
        "server": roles.server,
        "engine": roles.engine,
        "reader": roles.reader,
        "pusher": roles.pusher,
    }
    has_reader = await (await conn.execute(_sql["role_exists"], {"reader": roles.reader})).fetchone() == (True,)
    parts = [
        *[fill_names(_roles["create"], {"role": role}) for role in (roles.server, roles.engine)],
        *[fill_names(_roles[block], names) for block in ("both", "server", "engine")],
        render_reader_role(owner=owner, database=database, reader=roles.reader, has_role=has_reader),
        fill_names(_roles["reader"], names),
        fill_names(_roles["pusher"], names),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts)


async def apply(conn: Connection, roles: Roles) -> None:
    """Create the roles and grant their rights, in one transaction."""
    text = await render_statements(conn, roles)
    try:
        async with conn.transaction():
            await conn.execute(text.encode(), prepare=False)
    except psycopg.errors.InsufficientPrivilege as error:
        raise DatabaseError(
            f"role {conn.info.user!r} may not create roles ({error.diag.message_primary}): connect as a superuser, or "
            "let one run the output of `penstock db roles`"
        ) from error
