"""The roles that Penstock's processes connect as, each with no more rights than its work takes.

The owner of the schemas migrates them, and need not be connected as otherwise. The tables of segments are made and
dropped while Penstock runs, by functions with the rights of the owner. So the role of the server owns nothing, and
that of the engine its results alone. The rights are in ``roles/runtime.sql``; those of the role that may only look are
:mod:`penstock.db.readonly_login`'s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import psycopg
from psycopg import sql

from penstock.core.errors import DatabaseError, InvalidName
from penstock.db.pool import Connection
from penstock.db.readonly_login import READER, reader_statements
from penstock.db.statements import Statements, filled

_roles = Statements("penstock.db", "role_runtime.sql")
_sql = Statements("penstock.db", "readonly_login.sql")
# No more is taken than needs no quoting: these names go into connection strings and files of others too.
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class Roles:
    """What the roles are called."""

    server: str = "penstock_server"
    engine: str = "penstock_engine"
    reader: str = READER

    def __post_init__(self) -> None:
        for name in (self.server, self.engine, self.reader):
            if not _NAME.fullmatch(name) or name.startswith("pg_"):
                raise InvalidName(
                    f"a role cannot be called {name[:80]!r}: use up to 63 lower-case letters, digits and "
                    "underscores, not beginning with a digit or pg_"
                )
        if len({self.server, self.engine, self.reader}) < 3:
            raise InvalidName("the server, the engine and the reader are three roles: give each a name of its own")


async def statements(conn: Connection, roles: Roles) -> str:
    """The SQL that makes the roles of the connection's database and gives them their rights, to be read and run."""
    row = await (await conn.execute(_sql["names"])).fetchone()
    if row is None:
        raise DatabaseError("this database has no Penstock schema yet: run `penstock db upgrade` as its owner")
    owner, database = row
    if owner in (roles.server, roles.engine, roles.reader):
        raise InvalidName(
            f"{owner!r} owns the schemas, and has all rights: give it to no process that can do with less"
        )
    names = {
        "owner": owner,
        "database": database,
        "server": roles.server,
        "engine": roles.engine,
        "reader": roles.reader,
    }
    is_reader = await (await conn.execute(_sql["is_there"], {"reader": roles.reader})).fetchone()
    look = reader_statements(owner=owner, database=database, reader=roles.reader)
    if is_reader is not None and is_reader[0]:
        look = "\n".join(line for line in look.splitlines() if not line.startswith("CREATE ROLE")) + "\n"
    parts = [
        *[_filled(_roles["create"], {"role": role}) for role in (roles.server, roles.engine)],
        *[_filled(_roles[block], names) for block in ("both", "server", "engine")],
        look,
        _filled(_roles["reader"], names),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts)


async def apply(conn: Connection, roles: Roles) -> None:
    """Make the roles and give them their rights: all of it or nothing."""
    text = await statements(conn, roles)
    try:
        async with conn.transaction():
            await conn.execute(text.encode(), prepare=False)
    except psycopg.errors.InsufficientPrivilege as error:
        raise DatabaseError(
            f"role {conn.info.user!r} may not do this ({error.diag.message_primary}): let a superuser run what "
            "`penstock db roles` prints, or connect as one"
        ) from error


def _filled(text: str, names: dict[str, str]) -> str:
    literals = {f"{name}_text": sql.Literal(value).as_string().strip() for name, value in names.items()}
    return filled(text, **literals, **{name: sql.Identifier(value).as_string() for name, value in names.items()})
