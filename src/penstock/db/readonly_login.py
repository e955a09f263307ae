"""The login for statements that people type: it may look, and nothing else.

A role that a statement could leave, as after ``SET ROLE``, would be no boundary. This one has no other to go back to:
it is connected as from the start, is in no other role, and owns nothing. What it may see is in ``roles/reader.sql``.

``PENSTOCK_READER_URL`` names it. The embedded PostgreSQL gets one by itself; on one of yours it is made by an
administrator, or by :meth:`ReaderLogin.make` where Penstock's own role may create roles.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from pathlib import Path
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.core.errors import ConfigurationError, DatabaseError, DatabaseUnavailable
from penstock.core.settings import redact
from penstock.db.embedded.secure_files import cannot_use, new_file
from penstock.db.pool import Connection, Database, connect_options
from penstock.db.statements import Statements, filled

READER = "penstock_reader"

_roles = Statements("penstock.db", "role_reader.sql")
_sql = Statements("penstock.db", "readonly_login.sql")


class ReaderMissing(ConfigurationError):
    """There is no such login yet; ``statements`` make one, and ``can_make`` says whether we may run them."""

    def __init__(self, message: str, *, statements: str, can_make: bool) -> None:
        super().__init__(message)
        self.statements = statements
        self.can_make = can_make


class ReaderLogin:
    """Connections to a database as somebody who may only look."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._checked: str | None = None
        self._making = asyncio.Lock()

    async def connect(self) -> AsyncConnection[Any]:
        """A connection of its own; the caller closes it. Raises ReaderMissing if there is no login."""
        if self._checked is None:
            async with self._making:
                if self._checked is None:
                    self._checked = await self._find()
        return await _connect(self._checked)

    async def make(self) -> None:
        """Make the login with a password of its own, which is kept in the data directory."""
        settings = self._database.settings
        password = secrets.token_urlsafe(32)
        place = self._secret()
        async with self._making, self._database.connection() as conn, conn.transaction():
            await conn.execute(_filled(_roles["create"], await _names(conn)), prepare=False)
            # Hashed here: the server may log what it is told.
            hashed = conn.pgconn.encrypt_password(password.encode(), READER.encode(), b"scram-sha-256").decode()
            said = sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(READER), sql.Literal(hashed))
            await conn.execute(said, prepare=False)
            await _grant(conn)
            try:
                await asyncio.to_thread(_keep, place, password)
            except OSError as error:
                raise cannot_use(error, place) from None
        try:
            self._checked = await self._check(
                make_conninfo(settings.database_url or "", user=READER, password=password)
            )
        except DatabaseError as error:
            raise ConfigurationError(
                f"the role {READER} was made, but the server does not let it in: {error}. Give it an entry in "
                "pg_hba.conf, or set PENSTOCK_READER_URL"
            ) from error

    async def _find(self) -> str:
        settings = self._database.settings
        if settings.reader_url is not None:
            return await self._check(settings.reader_url)
        if settings.database_url is None:
            # Only this account and root get to the socket: there, a password would guard nothing.
            async with self._database.connection() as conn:
                await ensure_reader(conn)
            return await self._check(make_conninfo(self._database.conninfo, user=READER))
        place = self._secret()
        if place.is_file():
            password = await asyncio.to_thread(place.read_text, encoding="utf-8")
            return await self._check(make_conninfo(settings.database_url, user=READER, password=password.strip()))
        async with self._database.connection() as conn:
            names = await _names(conn)
            row = await (await conn.execute(_sql["may_make"], {"reader": READER})).fetchone()
        raise ReaderMissing(
            "there is no login yet that may look and nothing else: make one, and set PENSTOCK_READER_URL to it",
            statements=_render(names),
            can_make=bool(row and row[0]),
        )

    async def _check(self, url: str) -> str:
        """Return the connection string if it is of somebody who can do no harm."""
        conn = await _connect(url)
        try:
            row = await (await conn.execute(_sql["too_much"])).fetchone()
        finally:
            await conn.close()
        user, database, problems = row if row is not None else ("", "", [])
        if problems:
            raise ConfigurationError(
                f"the login {user!r} is not one that may only look: it {', '.join(problems)}. Name another one in "
                "PENSTOCK_READER_URL"
            )
        async with self._database.connection() as own:
            here = await (await own.execute("SELECT current_database()")).fetchone()
        if here is not None and here[0] != database:
            raise ConfigurationError(
                f"PENSTOCK_READER_URL leads to the database {database!r}, and Penstock's is {here[0]!r}: correct it"
            )
        return url

    def _secret(self) -> Path:
        settings = self._database.settings
        parts = conninfo_to_dict(settings.database_url or "")
        which = "\n".join(f"{name}={parts.get(name)}" for name in ("host", "hostaddr", "port", "dbname", "service"))
        return settings.data_dir / f"reader-{hashlib.sha256(which.encode()).hexdigest()[:12]}.secret"


async def ensure_reader(conn: Connection) -> None:
    """Make the role if it is not there, and give it its rights, as somebody who may do both."""
    async with conn.transaction():
        # Roles are the cluster's, and two processes may come at once.
        await conn.execute(_sql["one_at_a_time"])
        row = await (await conn.execute(_sql["is_there"], {"reader": READER})).fetchone()
        if row is None or not row[0]:
            await conn.execute(_filled(_roles["create"], await _names(conn)), prepare=False)
        await _grant(conn)


def reader_statements(*, owner: str, database: str, reader: str = READER) -> str:
    """The SQL that makes the login, to be read and run by an administrator."""
    return _render({"owner": owner, "database": database, "reader": reader})


async def _grant(conn: Connection) -> None:
    names = await _names(conn)
    for block in ("limits", "grants"):
        await conn.execute(_filled(_roles[block], names), prepare=False)
    row = await (await conn.execute(_sql["is_superuser"])).fetchone()
    if row is not None and row[0]:
        await conn.execute(_filled(_roles["superuser"], names), prepare=False)


async def _names(conn: Connection) -> dict[str, str]:
    row = await (await conn.execute(_sql["names"])).fetchone()
    owner, database = row if row is not None else ("", "")
    return {"owner": owner, "database": database, "reader": READER}


def _filled(text: str, names: dict[str, str]) -> sql.SQL:
    return sql.SQL(filled(text, **{name: sql.Identifier(value).as_string() for name, value in names.items()}))


def _render(names: dict[str, str]) -> str:
    parts = [_filled(_roles[block], names).as_string() for block in ("create", "limits", "grants")]
    password = f"-- And a password, with psql's: \\password {names['reader']}"
    return "\n".join([*parts, password]) + "\n"


def _keep(place: Path, password: str) -> None:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with new_file(place, 0o600) as file:
        file.write(password + "\n")


async def _connect(url: str) -> AsyncConnection[Any]:
    try:
        return await AsyncConnection.connect(url, **connect_options(url))
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable(
            f"the login for looking cannot connect ({redact(url)}): {str(error).strip()}"
        ) from error
