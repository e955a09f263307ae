"""Creates and upgrades the schema ``penstock`` with numbered SQL files.

A migration is a file ``NNNN_name.sql`` in ``migrations/``. The first one, the baseline, creates the whole schema of
release 0.1.0. It replaces the migrations 1 to 18 of that release, so a database of 0.1.0 counts as being at the
baseline. Each later file changes the schema, and their numbers have no gaps. A released file is never edited:
``penstock.migrations`` records its checksum when it is applied.

Each migration runs in its own transaction, so it contains no BEGIN or COMMIT, and no statement that cannot run in a
transaction, such as CREATE INDEX CONCURRENTLY. Any number of processes may upgrade at once: one of them holds an
advisory lock (:data:`ADVISORY_LOCK`), the others wait and then find nothing to do.

The role needs CREATE on the database, or a schema ``penstock`` that it owns. It needs no extension and no superuser.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.rows import class_row, scalar_row

from penstock.core.errors import DatabaseError, InvalidOption, SchemaError

# Also works inside a zip file, such as one that Spark ships to its executors.
MIGRATIONS_DIR: Traversable = resources.files("penstock.db").joinpath("migrations")
"""The migrations of this package."""

#: How often a migration is attempted that ends in a deadlock.
_MAX_ATTEMPTS = 5

#: The checksum that 0.1.0 recorded for its last migration, 0018_casts, in place of the baseline's.
_CHECKSUM_OF_0_1 = "054dc3ed5bb1da4f1e0218683595e6f0bed84712ebb3e5d2c6dcf6dd1bbf70d4"

ADVISORY_LOCK = 0x50454E53544F434B
"""Key of the advisory lock that guards schema changes: "PENSTOCK" in ASCII."""

BOOKKEEPING = """\
-- CREATE SCHEMA IF NOT EXISTS would need CREATE on the database even if the schema exists.
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
"""Creates the schema and the table of applied migrations if they are missing. Runs before every migration."""

_LOCK = f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})"
_BEGIN = (
    # Overrides the role's default: after waiting for the lock, a statement must see what the last holder committed.
    b"SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
    # A migration, or the wait for the lock, may take longer than the role's limits.
    b"SET LOCAL statement_timeout = 0",
    b"SET LOCAL lock_timeout = 0",
    # Sessions of the pool are tuned for lookups by key. A migration may scan whole tables.
    b"SELECT set_config(name, reset_val, true) FROM pg_settings"
    b" WHERE category LIKE 'Query Tuning%' AND source = 'session'",
    _LOCK.encode(),
    BOOKKEEPING.encode(),
)
_RECORD = sql.SQL("INSERT INTO penstock.migrations (version, name, checksum) VALUES ({}, {}, {})")
_FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")

_SCRIPT_HEAD = """\
-- Penstock's schema, from version {start} to {end}.
-- Run it with psql as the role that Penstock connects as. Each migration is a transaction that first checks that it
-- is the next one, so running this twice, or out of order, changes nothing.
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
    """One SQL file of the schema."""

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
class AppliedMigration:
    """A row of ``penstock.migrations``."""

    version: int
    name: str
    checksum: str


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """The schema version of a database (0: no schema), the version of this package, and the migrations between."""

    current: int
    target: int
    pending: tuple[Migration, ...]


def load_migrations(directory: Traversable | None = None) -> tuple[Migration, ...]:
    """Read the migrations of ``directory`` (default: those of this package) in order, starting with the baseline."""
    directory = directory or MIGRATIONS_DIR
    migrations: list[Migration] = []
    files = [path for path in directory.iterdir() if path.name.endswith(".sql")]
    for path in sorted(files, key=lambda path: path.name):
        match = _FILE_NAME.fullmatch(path.name)
        expected = migrations[-1].version + 1 if migrations else None
        if match is None or (expected is not None and int(match[1]) != expected):
            name = "NNNN_name.sql" if expected is None else f"{expected:04}_name.sql"
            raise SchemaError(
                f"{path} is not the next migration: name it {name}; in an installed package, install Penstock again"
            )
        migrations.append(Migration(int(match[1]), match[2], path.read_text(encoding="utf-8")))
    if not migrations:
        raise SchemaError(f"{directory} contains no migrations: install Penstock again")
    return tuple(migrations)


async def status(conn: AsyncConnection[Any], *, directory: Traversable | None = None) -> MigrationStatus:
    """Compare the schema of the database with this package. Changes nothing."""
    known = load_migrations(directory)
    current = max(await _read_applied(conn), default=0)
    return MigrationStatus(current, known[-1].version, _pending_after(known, current))


async def verify(conn: AsyncConnection[Any], *, directory: Traversable | None = None) -> None:
    """Raise :class:`SchemaError` unless the database has exactly the schema of this package."""
    known = load_migrations(directory)
    applied = await _read_applied(conn)
    _check_history(known, applied)
    current, target = max(applied, default=0), known[-1].version
    if current == target:
        return
    if current == 0:
        raise SchemaError("this database has no Penstock schema yet: run `penstock db upgrade`")
    raise SchemaError(
        f"this database has Penstock schema {current} and this package needs {target}: run `penstock db upgrade`"
    )


async def upgrade(
    conn: AsyncConnection[Any], target: int | None = None, *, directory: Traversable | None = None
) -> list[Migration]:
    """Apply the pending migrations up to version ``target`` (default: all) and return those that this call applied.

    ``conn`` must not be in a transaction, because each migration commits. If one fails, the ones before it stay
    applied and it leaves no trace.
    """
    known = load_migrations(directory)
    goal = known[-1].version if target is None else target
    _check_version(known, goal, "target")
    applied_here: list[Migration] = []
    attempts = 0
    # The check before the lock lets a role without CREATE open a database that is up to date.
    while _next_migration(known, await _read_applied(conn), goal) is not None:
        try:
            migration = await _apply_next(conn, known, goal)
        except DatabaseError as error:
            # Clients that are at work lock the tables in another order.
            attempts += 1
            if attempts == _MAX_ATTEMPTS or not isinstance(error.__cause__, psycopg.errors.DeadlockDetected):
                raise
            continue
        if migration is not None:
            applied_here.append(migration)
    return applied_here


def render_sql(from_version: int = 0, *, directory: Traversable | None = None) -> str:
    """Return a script that upgrades a database from ``from_version`` to the schema of this package.

    A database administrator can read it and run it with psql. It records what it does as :func:`upgrade` would.
    """
    known = load_migrations(directory)
    _check_version(known, from_version, "from_version")
    parts = [_SCRIPT_HEAD.format(start=from_version, end=known[-1].version)]
    before = from_version
    for migration in _pending_after(known, from_version):
        check = _SCRIPT_CHECK.format(label=migration, before=before)
        record = _record_statement(migration).as_string()
        body = migration.sql.rstrip()
        parts += ["\nBEGIN ISOLATION LEVEL READ COMMITTED;\n", f"{_LOCK};\n{BOOKKEEPING}{check}\n"]
        parts += [f"{body}\n\n{record};\n", "COMMIT;\n"]
        before = migration.version
    return "".join(parts)


def _pending_after(known: Sequence[Migration], current: int) -> tuple[Migration, ...]:
    return tuple(migration for migration in known if migration.version > current)


def _check_version(known: Sequence[Migration], version: int, option: str) -> None:
    first, last = known[0].version, known[-1].version
    if version != 0 and not first <= version <= last:
        raise InvalidOption(
            f"there is no schema version {version}: this package knows 0 (no schema) and {first} to {last}",
            option=option,
        )


async def _apply_next(conn: AsyncConnection[Any], known: Sequence[Migration], goal: int) -> Migration | None:
    migration: Migration | None = None
    try:
        async with conn.transaction():
            for statement in _BEGIN:
                await conn.execute(statement, prepare=False)
            migration = _next_migration(known, await _read_applied(conn), goal)
            if migration is not None:
                # PostgreSQL cannot prepare a text with several statements.
                await conn.execute(migration.sql.encode(), prepare=False)
                await conn.execute(_record_statement(migration), prepare=False)
    except psycopg.errors.InsufficientPrivilege as error:
        raise _not_allowed(conn, error) from error
    except psycopg.Error as error:
        raise DatabaseError(
            f"migration {migration or 'bookkeeping'} failed and nothing of it was applied: {error}"
        ) from error
    return migration


def _next_migration(known: Sequence[Migration], applied: Mapping[int, AppliedMigration], goal: int) -> Migration | None:
    _check_history(known, applied)
    current = max(applied, default=0)
    return next((migration for migration in known if current < migration.version <= goal), None)


def _check_history(known: Sequence[Migration], applied: Mapping[int, AppliedMigration]) -> None:
    baseline, newest = known[0], known[-1]
    current = max(applied, default=0)
    if current > newest.version:
        raise SchemaError(
            f"this database was upgraded by a newer Penstock (schema {current}); this package knows "
            f"{newest.version}: upgrade the package"
        )
    if 0 < current < baseline.version:
        raise SchemaError(
            f"this database has schema {current}, which is older than {baseline.version}, the oldest that this package "
            "upgrades: run `penstock db upgrade` of Penstock 0.1.0 first"
        )
    for migration in known:
        if migration.version > current:
            return
        row = applied.get(migration.version)
        accepted = {migration.checksum}
        if migration is baseline:
            accepted.add(_CHECKSUM_OF_0_1)
        if row is None or row.checksum not in accepted:
            problem = "it was never applied" if row is None else f"it was applied as {row.name!r} with other text"
            raise SchemaError(
                f"migration {migration} of this package did not create this database: {problem}. Install the "
                "released Penstock that created it; a database of a development version has to be created again"
            )


async def _read_applied(conn: AsyncConnection[Any]) -> dict[int, AppliedMigration]:
    try:
        async with conn.transaction(), conn.cursor(row_factory=class_row(AppliedMigration)) as cursor:
            lookup = conn.cursor(row_factory=scalar_row)
            await lookup.execute("SELECT to_regclass('penstock.migrations')", prepare=False)
            if await lookup.fetchone() is None:
                return {}
            await cursor.execute("SELECT version, name, checksum FROM penstock.migrations", prepare=False)
            return {row.version: row async for row in cursor}
    except psycopg.errors.InsufficientPrivilege as error:
        raise _not_allowed(conn, error) from error


def _not_allowed(conn: AsyncConnection[Any], error: psycopg.Error) -> DatabaseError:
    role, database = conn.info.user, conn.info.dbname
    return DatabaseError(
        f"role {role!r} may neither use nor create the schema penstock in database {database!r} "
        f"({error.diag.message_primary}): connect as the role that owns the schema. If it does not exist, the owner of "
        f'the database has to run `CREATE SCHEMA penstock AUTHORIZATION "{role}"`, and the same for penstock_live and '
        f'penstock_history, or `GRANT CREATE ON DATABASE "{database}" TO "{role}"`'
    )


def _record_statement(migration: Migration) -> sql.Composed:
    return _RECORD.format(migration.version, migration.name, migration.checksum)
