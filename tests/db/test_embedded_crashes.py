from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest

from penstock.db.embedded import server as embedded
from penstock.db.embedded.server import EmbeddedPostgres
from tests.db.embedded_server import (
    User,
    alive,
    ask,
    foreign_process,
    keep_a_row,
    kill_server,
    running_pid,
)


class TestCrashes:
    def test_a_killed_server_recovers_what_was_committed(self, postgres: EmbeddedPostgres, home: Path) -> None:
        postgres.start()
        keep_a_row(postgres)
        killed = running_pid(home)
        kill_server(home)
        assert embedded.status(home).state == "stopped"
        postgres.start()
        assert running_pid(home) != killed
        assert ask(postgres, "SELECT answer FROM kept") == 42

    def test_what_a_killed_server_leaves_at_work_is_waited_for(self, postgres: EmbeddedPostgres, home: Path) -> None:
        postgres.start()
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            # It does not look up from its work, so it outlives its parent for a while.
            connection.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 10_000_000)")
            backend = psutil.Process(connection.info.backend_pid)
            while not ask(postgres, "SELECT count(*) > 1 FROM pg_stat_activity WHERE state = 'active'"):
                time.sleep(0.01)
            kill_server(home)
            assert alive(backend)
            postgres.start()
            assert not alive(backend)
            connection.close()
        assert ask(postgres, "SELECT 1") == 1

    def test_a_pid_file_with_the_number_of_another_process_does_not_stand_in_the_way(
        self, postgres: EmbeddedPostgres, home: Path
    ) -> None:
        postgres.start()
        pid_file, socket_lock = home / "pg18" / "postmaster.pid", home / "run" / ".s.PGSQL.5432.lock"
        old, old_lock = pid_file.read_text(), socket_lock.read_text()
        pid = running_pid(home)
        kill_server(home)
        with foreign_process(home) as stranger:
            pid_file.write_text(old.replace(str(pid), str(stranger.pid), 1))
            socket_lock.write_text(old_lock.replace(str(pid), str(stranger.pid), 1))
            assert embedded.status(home).state == "stopped"
            postgres.start()
            assert running_pid(home) != stranger.pid
            assert ask(postgres, "SELECT 1") == 1
            postgres.release()
            assert stranger.poll() is None
            stranger.kill()

    def test_a_pid_file_that_a_crash_left_empty_does_not_stand_in_the_way(
        self, postgres: EmbeddedPostgres, home: Path
    ) -> None:
        postgres.start()
        kill_server(home)
        (home / "pg18" / "postmaster.pid").write_text("")
        postgres.start()
        assert ask(postgres, "SELECT 1") == 1

    def test_a_server_whose_socket_was_deleted_is_started_again(self, postgres: EmbeddedPostgres, home: Path) -> None:
        postgres.start()
        keep_a_row(postgres)
        (home / "run" / ".s.PGSQL.5432").unlink()
        postgres.start()
        assert ask(postgres, "SELECT answer FROM kept") == 42

    @pytest.mark.parametrize("sight", ["pgdata.tmp/PG_VERSION", "pg18", "startup.log", "pg18/postmaster.pid"])
    def test_a_process_killed_while_it_starts_the_server_leaves_no_harm(
        self, postgres: EmbeddedPostgres, empty_home: Path, new_user: Callable[[], User], sight: str
    ) -> None:
        user = new_user()
        while not (empty_home / sight).exists():
            time.sleep(0.001)
        user.kill()
        postgres.start()
        assert ask(postgres, "SELECT 1") == 1
