"""The PostgreSQL servers of a test run, with a fresh database for each test.

All test processes of a run share the servers. Tests connect as a role that owns its database and nothing else, because
Penstock must not need more.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from penstock.db import migrate
from penstock.db.embedded import server as embedded
from penstock.db.embedded.postmaster import PORT, USER
from penstock.db.embedded.server import EmbeddedPostgres

ROLE = "app"
TEMPLATE = "penstock_template"

# No test kills these servers, so their data need not be on disk.
_FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "log_min_duration_statement": "2s",
    "max_prepared_transactions": "4",
}


@cache
def available() -> dict[str, Path]:
    """Return label -> bin directory: the bundled PostgreSQL 18, and 15 to 17 if Debian's packages are installed.

    PENSTOCK_TEST_POSTGRES_BINDIRS adds more, separated as in PATH.
    """
    configured = os.environ.get("PENSTOCK_TEST_POSTGRES_BINDIRS", "").split(os.pathsep)
    directories = [Path(directory) for directory in configured if directory]
    directories += [path for major in (15, 16, 17) if (path := Path(f"/usr/lib/postgresql/{major}/bin")).is_dir()]
    servers = {"pg18": embedded.bundled_bin_dir()}
    for directory in directories:
        version = subprocess.check_output([str(directory / "postgres"), "--version"], text=True)
        servers.setdefault(f"pg{re.findall('[0-9]+', version)[0]}", directory)
    return servers


class Server:
    """A running PostgreSQL."""

    def __init__(self, label: str, postgres: EmbeddedPostgres) -> None:
        self.label = label
        self.postgres = postgres
        # Creates and drops the databases of this process. A connection for each statement would take as long as a drop.
        self._administrator = self.superuser()

    def url(self, database: str, role: str = ROLE) -> str:
        """Return the URI of a database. The role ``penstock`` is the superuser."""
        host = conninfo_to_dict(self.postgres.url)["host"]
        return f"postgresql://{role}@/{database}?host={quote(str(host), safe='')}&port={PORT}"

    def superuser(self, database: str = "postgres") -> psycopg.Connection:
        return psycopg.connect(self.url(database, USER), autocommit=True)

    @contextmanager
    def fresh_database(self, template: str) -> Iterator[str]:
        """Create a database, yield its URI and drop it, even if clients are connected."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        # Without WAL, which is faster for a small database.
        create = "CREATE DATABASE {} TEMPLATE {} OWNER {} STRATEGY FILE_COPY"
        self._administrator.execute(_statement(create, name, template, ROLE))
        try:
            yield self.url(name)
        finally:
            self._administrator.execute(_statement("DROP DATABASE {} WITH (FORCE)", name))

    def close(self) -> None:
        self._administrator.close()

    def make_template(self) -> None:
        with self.superuser() as connection:
            if connection.execute("SELECT FROM pg_database WHERE datname = %s", [TEMPLATE]).fetchall():
                return
            if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [ROLE]).fetchall():
                connection.execute(_statement("CREATE ROLE {} LOGIN", ROLE))
            # Renamed when it is complete.
            connection.execute(_statement("DROP DATABASE IF EXISTS {}", f"{TEMPLATE}_unfinished"))
            connection.execute(_statement("CREATE DATABASE {} OWNER {}", f"{TEMPLATE}_unfinished", ROLE))
            with psycopg.connect(self.url(f"{TEMPLATE}_unfinished"), autocommit=True) as inside:
                inside.execute(migrate.render_sql().encode())
            connection.execute(_statement("ALTER DATABASE {} RENAME TO {}", f"{TEMPLATE}_unfinished", TEMPLATE))


@contextmanager
def running(label: str, root: Path) -> Iterator[Server]:
    """Use the server ``label`` of the test run with files in ``root``."""
    with (
        EmbeddedPostgres(root / label, bin_dir=available()[label], options=_FAST) as postgres,
        closing(Server(label, postgres)) as server,
    ):
        with (root / f"{label}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            server.make_template()
        yield server


def stop_all(root: Path) -> None:
    """Stop the servers that killed test processes left running."""
    for label, bin_dir in available().items():
        if embedded.status(root / label, bin_dir=bin_dir).pid is not None:
            EmbeddedPostgres(root / label, bin_dir=bin_dir).stop()


def _statement(template: str, *names: str) -> sql.Composed:
    return sql.SQL(template).format(*map(sql.Identifier, names))
