"""The schema ``penstock`` and how it moves forward: numbered .sql files, each applied once, in order.

A migration is a file ``NNNN_name.sql`` in ``migrations/``, numbered from 0001 without gaps. Once released it
is never edited: what was applied is recorded with its checksum in ``penstock.migrations``. Each runs in a
transaction of its own, so it holds no BEGIN or COMMIT and nothing that cannot run in a transaction, such as
CREATE INDEX CONCURRENTLY. Any number of processes may upgrade at once: an advisory lock
(:data:`ADVISORY_LOCK`) lets one of them work while the others wait and then find nothing to do.

The role needs CREATE on the database, or a schema ``penstock`` that it owns; no extension, no superuser.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.rows import tuple_row

from penstock.core.errors import DatabaseError, InvalidOption, SchemaError

# Of the package wherever it is, also in a zip that travels with a Spark job.
MIGRATIONS_DIR: Traversable = resources.files("penstock.db").joinpath("migrations")

#: So often a migration is begun that waits for others crosswise.
_MOST_TRIES = 5

ADVISORY_LOCK = 0x50454E53544F434B
"""The key of the lock that a transaction takes before it changes the schema: "PENSTOCK" in ASCII."""

BOOKKEEPING = """\
-- Asked first, because CREATE SCHEMA IF NOT EXISTS needs a right that the owner of the schema may not have.
DO $$
BEGIN
    IF to_regnamespace('penstock') IS NULL THEN
        CREATE SCHEMA penstock;
    END IF;
    IF to_regclass('penstock.migrations') IS NULL THEN
        CREATE TABLE penstock.migrations (
            version    integer PRIMARY KEY,
            name       text NOT NULL,
            checksum   text NOT NULL,
            applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
    END IF;
END
$$;
"""
"""What every migration runs first: the schema and the table that records migrations, where missing."""

_LOCK = f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})"
_BEGIN = (
    # Whatever the role's default is: after the wait for the lock we have to see what its last holder did.
    b"SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
    # A migration, or the wait for another process's, may take longer than a role's usual limits.
    b"SET LOCAL statement_timeout = 0",
    b"SET LOCAL lock_timeout = 0",
    # Our sessions are set up for looking things up by key; a migration may have whole tables to go through.
    b"SELECT set_config(name, reset_val, true) FROM pg_settings"
    b" WHERE category LIKE 'Query Tuning%' AND source = 'session'",
    _LOCK.encode(),
    BOOKKEEPING.encode(),
)
_RECORD = sql.SQL("INSERT INTO penstock.migrations (version, name, checksum) VALUES ({}, {}, {})")
_FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")

_SCRIPT_HEAD = """\
-- Penstock's schema, from version {start} to {end}.
-- Run it with psql as the role that Penstock connects as. Each migration is a transaction that first checks
-- that it is the next one, so that running this twice, or out of turn, changes nothing.
SET client_encoding = 'UTF8';
"""
_SCRIPT_CHECK = """\
DO $$
BEGIN
    IF (SELECT coalesce(max(version), 0) FROM penstock.migrations) <> {before} THEN
        RAISE EXCEPTION 'migration {label} does not come next: the schema is at version %, not {before}',
            (SELECT coalesce(max(version), 0) FROM penstock.migrations);
    END IF;
END
$$;
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hex."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.version:04}_{self.name}"


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """Where a database stands (0: no schema yet), where this package wants it, and the steps between."""

    current: int
    target: int
    pending: tuple[Migration, ...]


def load_migrations(directory: Traversable = MIGRATIONS_DIR) -> tuple[Migration, ...]:
    """Read the migrations of ``directory``, in order."""
    migrations: list[Migration] = []
    files = [path for path in directory.iterdir() if path.name.endswith(".sql")]
    for path in sorted(files, key=lambda path: path.name):
        match = _FILE_NAME.fullmatch(path.name)
        if match is None or int(match[1]) != len(migrations) + 1:
            raise SchemaError(
                f"{path} is not the next migration: name it {len(migrations) + 1:04}_what_it_does.sql; "
                "in an installed package, install Penstock again"
            )
        migrations.append(Migration(int(match[1]), match[2], path.read_text(encoding="utf-8")))
    return tuple(migrations)


async def status(conn: AsyncConnection[Any], *, directory: Traversable = MIGRATIONS_DIR) -> MigrationStatus:
    """Compare the database with this package, changing nothing."""
    known = load_migrations(directory)
    current = max(await _applied(conn), default=0)
    return MigrationStatus(current, len(known), known[current:])


async def verify(conn: AsyncConnection[Any], *, directory: Traversable = MIGRATIONS_DIR) -> None:
    """Raise :class:`SchemaError` unless the database has exactly the schema that this package works with."""
    known = load_migrations(directory)
    applied = await _applied(conn)
    _check_history(known, applied)
    current = max(applied, default=0)
    if current == len(known):
        return
    if current == 0:
        raise SchemaError("this database has no Penstock schema yet: run `penstock db upgrade`")
    raise SchemaError(
        f"this database has Penstock schema {current} and this package needs {len(known)}: run `penstock db upgrade`"
    )


async def upgrade(
    conn: AsyncConnection[Any], target: int | None = None, *, directory: Traversable = MIGRATIONS_DIR
) -> list[Migration]:
    """Apply what is pending, up to version ``target`` or all, and return what this call applied.

    ``conn`` must not be in a transaction: each migration commits by itself. When one fails, those before it
    stay and nothing of it does.
    """
    known = load_migrations(directory)
    goal = len(known) if target is None else target
    if not 0 <= goal <= len(known):
        raise InvalidOption(f"there is no schema version {goal}: this package knows 0 to {len(known)}", option="target")
    applied_here: list[Migration] = []
    # Looked at before anything is locked: on a database that is up to date this needs no right to create.
    tries = 0
    while _next(known, await _applied(conn), goal) is not None:
        try:
            migration = await _apply_next(conn, known, goal)
        except DatabaseError as error:
            # Others work meanwhile, and lock tables in an order of their own.
            tries += 1
            if tries == _MOST_TRIES or not isinstance(error.__cause__, psycopg.errors.DeadlockDetected):
                raise
            continue
        if migration is not None:
            applied_here.append(migration)
    return applied_here


def render_sql(from_version: int = 0, *, directory: Traversable = MIGRATIONS_DIR) -> str:
    """Return the script that brings a database from ``from_version`` to this package's schema.

    It needs no connection, and records what it does as :func:`upgrade` would, for a database administrator to
    read and to run with psql.
    """
    known = load_migrations(directory)
    if not 0 <= from_version <= len(known):
        raise InvalidOption(
            f"there is no schema version {from_version}: this package knows 0 to {len(known)}",
            option="from_version",
        )
    parts = [_SCRIPT_HEAD.format(start=from_version, end=len(known))]
    for migration in known[from_version:]:
        check = _SCRIPT_CHECK.format(label=migration, before=migration.version - 1)
        record = _record(migration).as_string()
        body = migration.sql.rstrip()
        parts += ["\nBEGIN ISOLATION LEVEL READ COMMITTED;\n", f"{_LOCK};\n{BOOKKEEPING}{check}\n"]
        parts += [f"{body}\n\n{record};\n", "COMMIT;\n"]
    return "".join(parts)


async def _apply_next(conn: AsyncConnection[Any], known: Sequence[Migration], goal: int) -> Migration | None:
    migration: Migration | None = None
    try:
        async with conn.transaction():
            for statement in _BEGIN:
                await conn.execute(statement, prepare=False)
            migration = _next(known, await _applied(conn), goal)
            if migration is not None:
                # Several statements in one text cannot be prepared.
                await conn.execute(migration.sql.encode(), prepare=False)
                await conn.execute(_record(migration), prepare=False)
    except psycopg.errors.InsufficientPrivilege as error:
        raise _not_allowed(conn, error) from error
    except psycopg.Error as error:
        raise DatabaseError(
            f"migration {migration or 'bookkeeping'} failed and nothing of it was applied: {error}"
        ) from error
    return migration


def _next(known: Sequence[Migration], applied: dict[int, tuple[str, str]], goal: int) -> Migration | None:
    _check_history(known, applied)
    current = max(applied, default=0)
    return known[current] if current < goal else None


def _check_history(known: Sequence[Migration], applied: dict[int, tuple[str, str]]) -> None:
    current = max(applied, default=0)
    if current > len(known):
        raise SchemaError(
            f"this database was upgraded by a newer Penstock (schema {current}); this package knows "
            f"{len(known)}: upgrade the package"
        )
    for migration in known[:current]:
        name, checksum = applied.get(migration.version, ("", ""))
        if checksum != migration.checksum:
            was = f"it was applied as {name!r} with other text" if name else "it was never applied"
            raise SchemaError(
                f"migration {migration} of this package is not what made this database: {was}. Install the "
                "released Penstock that the database was made with; a database of a development version "
                "has to be made anew"
            )


async def _applied(conn: AsyncConnection[Any]) -> dict[int, tuple[str, str]]:
    """Return version -> (name, checksum) of what was applied."""
    try:
        async with conn.transaction(), conn.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute("SELECT to_regclass('penstock.migrations') IS NOT NULL", prepare=False)
            if await cursor.fetchone() != (True,):
                return {}
            await cursor.execute("SELECT version, name, checksum FROM penstock.migrations", prepare=False)
            return {version: (name, checksum) async for version, name, checksum in cursor}
    except psycopg.errors.InsufficientPrivilege as error:
        raise _not_allowed(conn, error) from error


def _not_allowed(conn: AsyncConnection[Any], error: psycopg.Error) -> DatabaseError:
    role, database = conn.info.user, conn.info.dbname
    return DatabaseError(
        f"role {role!r} may not use or make the schema penstock in database {database!r} "
        f"({error.diag.message_primary}): connect as the role that owns the schema; if there is none, let "
        f'the owner of the database run `CREATE SCHEMA penstock AUTHORIZATION "{role}"`, the same for '
        f"penstock_live and penstock_history, "
        f'or `GRANT CREATE ON DATABASE "{database}" TO "{role}"`'
    )


def _record(migration: Migration) -> sql.Composed:
    return _RECORD.format(migration.version, migration.name, migration.checksum)
