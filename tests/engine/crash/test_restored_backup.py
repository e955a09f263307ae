"""A database that is put back to an earlier state: the query goes on from there, and neither stalls nor skips."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from penstock.core.settings import Settings
from penstock.db.embedded.server import EmbeddedPostgres
from tests.backups import run_program, take_base_backup
from tests.conftest import reachable_directory
from tests.engine.crash.orders import QUERY, Orders, committed, eventually, fence, stream
from tests.servers import ROLE, Server

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("spark")]


class Backup:
    """A dump of the database, taken while it is used, and put back in its place."""

    def __init__(self, server: Server, url: str, file: Path) -> None:
        self._server = server
        self._name = str(conninfo_to_dict(url)["dbname"])
        self._file = file
        run_program("pg_dump", "--format=custom", f"--file={file}", url)

    def restore(self) -> None:
        """Put it where the database is, whoever is connected there."""
        fresh, old = f"{self._name}_restored", f"{self._name}_old"
        with self._server.superuser() as connection:

            def do(text: str, *names: str) -> None:
                connection.execute(sql.SQL(text).format(*map(sql.Identifier, names)))

            do("CREATE DATABASE {} TEMPLATE template0 OWNER {}", fresh, ROLE)
            run_program("pg_restore", "--exit-on-error", f"--dbname={self._server.url(fresh)}", str(self._file))
            do("ALTER DATABASE {} ALLOW_CONNECTIONS false", self._name)
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", (self._name,)
            )
            do("ALTER DATABASE {} RENAME TO {}", self._name, old)
            do("ALTER DATABASE {} RENAME TO {}", fresh, self._name)
            do("DROP DATABASE {}", old)


def start(url: str) -> Any:
    return stream().start(QUERY, settings=Settings(database_url=url), interval_seconds=0, lease_seconds=2)


def wait_for_cycles(url: str, more: int = 2) -> None:
    goal = committed(url) + more
    eventually(lambda: committed(url) >= goal, what=f"{more} more cycles")


@pytest.mark.long
def test_a_running_query_goes_on_from_the_state_that_was_restored(
    pg18: Server, database_url: str, tmp_path: Path
) -> None:
    url = database_url
    with Orders(url) as orders:
        orders.push(300)
        query = start(url)
        try:
            with orders.pushing():
                wait_for_cycles(url)
            account = orders.copy_totals()
            backup = Backup(pg18, url, tmp_path / "backup")
            with orders.pushing():
                wait_for_cycles(url, 5)
            backup.restore()
            orders.restore_totals(account)
            orders.push(100)
            orders.check()
            assert query.is_running
        finally:
            query.stop()


def test_a_query_that_starts_on_a_restored_state_reads_what_came_after_it(
    pg18: Server, database_url: str, tmp_path: Path
) -> None:
    url = database_url
    with Orders(url) as orders:
        orders.push(300)
        query = start(url)
        with orders.pushing():
            wait_for_cycles(url)
        query.stop()
        orders.push(50)  # in the backup, and read only after it
        account = orders.copy_totals()
        backup = Backup(pg18, url, tmp_path / "backup")
        query = start(url)
        with orders.pushing():
            wait_for_cycles(url)
        query.stop()
        used = fence(url)
        backup.restore()
        orders.restore_totals(account)
        orders.push(100)
        query = start(url)
        try:
            orders.check()
            assert fence(url) != used, "a driver from before the restore, which has this number, could commit"
        finally:
            query.stop()


@pytest.mark.long
def test_a_base_backup_taken_while_a_query_runs_goes_on_elsewhere() -> None:
    root = reachable_directory()
    try:
        with EmbeddedPostgres(root / "here") as here, Orders(here.url) as orders:
            orders.push(300)
            query = start(here.url)
            try:
                with orders.pushing():
                    wait_for_cycles(here.url)
                    pushed = orders.copy_totals()
                    take_base_backup(here.url, root)
                    wait_for_cycles(here.url, 5)
            finally:
                query.stop()
        with EmbeddedPostgres(root / "there") as there, Orders(there.url) as restored:
            restored.load_stored()
            assert restored.count < orders.count
            assert all(restored.pushed[window][0] >= events for window, (events, _) in pushed.items())
            assert 0 < restored.counted() <= restored.count
            restored.push(100)
            query = start(there.url)
            try:
                restored.check()
            finally:
                query.stop()
    finally:
        shutil.rmtree(root)
