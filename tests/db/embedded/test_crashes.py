from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest

from penstock.db.embedded import server as embedded
from penstock.db.embedded.server import EmbeddedPostgres
from tests.db.embedded.server_process import (
    User,
    ask,
    foreign_process,
    is_alive,
    kill_server,
    running_pid,
    store_row,
)

pytestmark = pytest.mark.slow


class TestCrashes:
    def test_a_killed_server_recovers_committed_rows(self, postgres: EmbeddedPostgres, home: Path) -> None:
        postgres.start()
        store_row(postgres)
        killed = running_pid(home)
        kill_server(home)
        assert embedded.status(home).state == "stopped"
        postgres.start()
        assert running_pid(home) != killed
        assert ask(postgres, "SELECT answer FROM stored") == 42

    def test_a_start_waits_for_the_backends_of_a_killed_server(self, postgres: EmbeddedPostgres, home: Path) -> None:
        postgres.start()
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            # A busy backend outlives its postmaster for a while.
            connection.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 10_000_000)")
            backend = psutil.Process(connection.info.backend_pid)
            while not ask(postgres, "SELECT count(*) > 1 FROM pg_stat_activity WHERE state = 'active'"):
                time.sleep(0.01)
            kill_server(home)
            assert is_alive(backend)
            postgres.start()
            assert not is_alive(backend)
            connection.close()
        assert ask(postgres, "SELECT 1") == 1

    def test_a_stale_pid_file_with_the_pid_of_another_process_is_removed(
        self, postgres: EmbeddedPostgres, home: Path
    ) -> None:
        postgres.start()
        pid_file, socket_lock = home / "pg18" / "postmaster.pid", home / "run" / ".s.PGSQL.5432.lock"
        old, old_lock = pid_file.read_text(), socket_lock.read_text()
        pid = running_pid(home)
        kill_server(home)
        with foreign_process(home) as other_process:
            pid_file.write_text(old.replace(str(pid), str(other_process.pid), 1))
            socket_lock.write_text(old_lock.replace(str(pid), str(other_process.pid), 1))
            assert embedded.status(home).state == "stopped"
            postgres.start()
            assert running_pid(home) != other_process.pid
            assert ask(postgres, "SELECT 1") == 1
            postgres.release()
            assert other_process.poll() is None
            other_process.kill()

    def test_an_empty_pid_file_is_ignored(self, postgres: EmbeddedPostgres, home: Path) -> None:
        postgres.start()
        kill_server(home)
        (home / "pg18" / "postmaster.pid").write_text("")
        postgres.start()
        assert ask(postgres, "SELECT 1") == 1

    def test_a_server_whose_socket_was_deleted_is_restarted(self, postgres: EmbeddedPostgres, home: Path) -> None:
        postgres.start()
        store_row(postgres)
        (home / "run" / ".s.PGSQL.5432").unlink()
        postgres.start()
        assert ask(postgres, "SELECT answer FROM stored") == 42

    @pytest.mark.parametrize("created_file", ["pgdata.tmp/PG_VERSION", "pg18", "startup.log", "pg18/postmaster.pid"])
    def test_a_start_succeeds_after_another_process_was_killed_during_its_start(
        self, postgres: EmbeddedPostgres, empty_home: Path, new_user: Callable[[], User], created_file: str
    ) -> None:
        user = new_user()
        while not (empty_home / created_file).exists():
            time.sleep(0.001)
        user.kill()
        postgres.start()
        assert ask(postgres, "SELECT 1") == 1
