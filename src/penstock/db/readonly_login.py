"""The read-only login for queries that people type.

``SET ROLE`` would be no boundary, because a query can reset it. So this login connects as its own role, which is a
member of no other role and owns nothing. ``sql/role_reader.sql`` lists its rights.

``PENSTOCK_READER_URL`` selects the login. In the embedded PostgreSQL it is created automatically. In another one an
administrator creates it, or :meth:`ReadOnlyLogin.create` does if Penstock's own role may create roles.
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
from psycopg.rows import scalar_row

from penstock.core.errors import ConfigurationError, DatabaseError, DatabaseUnavailable
from penstock.core.settings import redact
from penstock.db.embedded.secure_files import create_file, unusable_path
from penstock.db.pool import Connection, Database, connect_options
from penstock.db.statements import Statements, fill_names

READER_ROLE = "penstock_reader"

_roles = Statements("penstock.db", "role_reader.sql")
_sql = Statements("penstock.db", "readonly_login.sql")


class ReadOnlyLoginMissing(ConfigurationError):
    """The login does not exist. ``statements`` create it; ``can_create`` tells whether Penstock's role may run them."""

    def __init__(self, message: str, *, statements: str, can_create: bool) -> None:
        super().__init__(message)
        self.statements = statements
        self.can_create = can_create


class ReadOnlyLogin:
    """Finds, creates and checks the login, and connects as it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._conninfo: str | None = None
        self._lock = asyncio.Lock()

    async def connect(self) -> AsyncConnection[Any]:
        """Open a connection. The caller closes it. Raises ReadOnlyLoginMissing if the login does not exist."""
        if self._conninfo is None:
            async with self._lock:
                if self._conninfo is None:
                    self._conninfo = await self._find()
        return await _connect(self._conninfo)

    async def create(self) -> None:
        """Create the login with a random password, and store the password in the data directory."""
        settings = self._database.settings
        password = secrets.token_urlsafe(32)
        path = self._password_file()
        async with self._lock, self._database.connection() as conn, conn.transaction():
            await _run(conn, "create")
            # Hashed by the client, because the server may log the statement.
            hashed = conn.pgconn.encrypt_password(password.encode(), READER_ROLE.encode(), b"scram-sha-256").decode()
            statement = sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(READER_ROLE), sql.Literal(hashed))
            await conn.execute(statement, prepare=False)
            await _grant(conn)
            try:
                await asyncio.to_thread(_write_password, path, password)
            except OSError as error:
                raise unusable_path(error, path) from None
        try:
            self._conninfo = await self._check(
                make_conninfo(settings.database_url or "", user=READER_ROLE, password=password)
            )
        except DatabaseError as error:
            raise ConfigurationError(
                f"the role {READER_ROLE} was created, but cannot connect: {error}. Add an entry to pg_hba.conf, or set "
                "PENSTOCK_READER_URL"
            ) from error

    async def _find(self) -> str:
        settings = self._database.settings
        if settings.reader_url is not None:
            return await self._check(settings.reader_url)
        if settings.database_url is None:
            # Only this account and root can open the socket, so a password would protect nothing.
            async with self._database.connection() as conn:
                await ensure_reader_role(conn)
            return await self._check(make_conninfo(self._database.conninfo, user=READER_ROLE))
        path = self._password_file()
        if path.is_file():
            password = await asyncio.to_thread(path.read_text, encoding="utf-8")
            return await self._check(make_conninfo(settings.database_url, user=READER_ROLE, password=password.strip()))
        async with self._database.connection() as conn:
            names = await _get_names(conn)
            can_create = await _fetch_value(conn, "can_create", {"reader": READER_ROLE})
        raise ReadOnlyLoginMissing(
            "the read-only login does not exist: create one, and set PENSTOCK_READER_URL to it",
            statements=render_reader_role(owner=names["owner"], database=names["database"]),
            can_create=bool(can_create),
        )

    async def _check(self, url: str) -> str:
        """Return the connection string, or raise ConfigurationError if the login can do more than read."""
        conn = await _connect(url)
        try:
            row = await (await conn.execute(_sql["excess_rights"])).fetchone()
        finally:
            await conn.close()
        user, database, problems = row if row is not None else ("", "", [])
        if problems:
            raise ConfigurationError(
                f"the login {user!r} is not read-only: it {', '.join(problems)}. Set PENSTOCK_READER_URL to another one"
            )
        async with self._database.connection() as own:
            own_database = await _fetch_value(own, "database")
        if own_database != database:
            raise ConfigurationError(
                f"PENSTOCK_READER_URL selects the database {database!r}, and Penstock uses {own_database!r}: correct it"
            )
        return url

    def _password_file(self) -> Path:
        settings = self._database.settings
        parts = conninfo_to_dict(settings.database_url or "")
        server = "\n".join(f"{name}={parts.get(name)}" for name in ("host", "hostaddr", "port", "dbname", "service"))
        return settings.data_dir / f"reader-{hashlib.sha256(server.encode()).hexdigest()[:12]}.secret"


async def ensure_reader_role(conn: Connection) -> None:
    """Create the role if it does not exist, and grant its rights. Needs a role that may do both."""
    async with conn.transaction():
        # Two processes may do this at once, and roles belong to the whole cluster.
        await conn.execute(_sql["lock"])
        if not await _fetch_value(conn, "role_exists", {"reader": READER_ROLE}):
            await _run(conn, "create")
        await _grant(conn)


def render_reader_role(*, owner: str, database: str, reader: str = READER_ROLE, has_role: bool = False) -> str:
    """Return the SQL that creates the login, unless ``has_role``, and grants its rights."""
    names = {"owner": owner, "database": database, "reader": reader}
    blocks = ("limits", "grants") if has_role else ("create", "limits", "grants")
    parts = [fill_names(_roles[block], names) for block in blocks]
    return "\n".join([*parts, f"-- Set a password with psql: \\password {reader}"]) + "\n"


async def _grant(conn: Connection) -> None:
    for block in ("limits", "grants"):
        await _run(conn, block)
    if await _fetch_value(conn, "is_superuser"):
        await _run(conn, "superuser")


async def _run(conn: Connection, block: str) -> None:
    await conn.execute(fill_names(_roles[block], await _get_names(conn)).encode(), prepare=False)


async def _get_names(conn: Connection) -> dict[str, str]:
    row = await (await conn.execute(_sql["owner_and_database"])).fetchone()
    owner, database = row if row is not None else ("", "")
    return {"owner": owner, "database": database, "reader": READER_ROLE}


async def _fetch_value(conn: Connection, statement: str, params: dict[str, str] | None = None) -> Any:
    cursor = conn.cursor(row_factory=scalar_row)
    return await (await cursor.execute(_sql[statement], params)).fetchone()


def _write_password(path: Path, password: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with create_file(path, 0o600) as file:
        file.write(password + "\n")


async def _connect(url: str) -> AsyncConnection[Any]:
    try:
        return await AsyncConnection.connect(url, **connect_options(url))
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable(
            f"the read-only login cannot connect ({redact(url)}): {str(error).strip()}"
        ) from error
