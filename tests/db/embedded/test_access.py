"""Permissions of the embedded PostgreSQL, and paths of its directory."""

from __future__ import annotations

import pwd
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from penstock.core.errors import ConfigurationError
from penstock.db.embedded import server as embedded
from penstock.db.embedded.server import EmbeddedPostgres
from tests.db.embedded.server_process import ask, kill_server, running_pid
from tests.python_process import as_root, run_python
from tests.servers import Server

pytestmark = pytest.mark.slow


@pytest.fixture
def copy_home(empty_home: Path, used_home: Path) -> Iterator[Callable[[str], Path]]:
    """Copy a data directory that was used before to another name, and stop its server at the end."""
    made: list[Path] = []

    def copy(name: str) -> Path:
        made.append(empty_home / name)
        subprocess.run(["cp", "-a", f"{used_home}/.", made[-1]], check=True)
        return made[-1]

    yield copy
    for path in made:
        EmbeddedPostgres(path).stop()


@pytest.fixture
def deep(copy_home: Callable[[str], Path]) -> Iterator[Path]:
    """A data directory whose path is too long for a socket in it."""
    path = copy_home("d" * 100)
    with EmbeddedPostgres(path) as server:
        socket_dir = socket_directory(server)
    yield path
    EmbeddedPostgres(path).stop()
    shutil.rmtree(socket_dir, ignore_errors=True)


def socket_directory(server: EmbeddedPostgres) -> Path:
    with psycopg.connect(server.url) as connection:
        return Path(connection.info.host)


class TestSocket:
    def test_a_path_too_long_for_a_socket_uses_a_short_private_directory(self, deep: Path) -> None:
        with EmbeddedPostgres(deep) as server:
            assert ask(server, "SELECT 1") == 1
            socket_dir = socket_directory(server)
            assert deep not in socket_dir.parents
            assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700

    @as_root
    def test_a_short_directory_of_another_user_is_refused(self, deep: Path) -> None:
        with EmbeddedPostgres(deep) as server:
            socket_dir = socket_directory(server)
        shutil.chown(socket_dir, "daemon")
        with pytest.raises(ConfigurationError, match=f"{socket_dir} belongs to another user"):
            EmbeddedPostgres(deep).start()

    def test_a_link_in_place_of_the_short_directory_is_refused(self, deep: Path, tmp_path: Path) -> None:
        with EmbeddedPostgres(deep) as server:
            socket_dir = socket_directory(server)
        socket_dir.rmdir()
        socket_dir.symlink_to(tmp_path)
        try:
            with pytest.raises(ConfigurationError, match=f"cannot use {socket_dir}"):
                EmbeddedPostgres(deep).start()
        finally:
            socket_dir.unlink()

    @as_root
    def test_a_server_of_another_user_is_not_used_after_a_crash(self, deep: Path, pg18: Server) -> None:
        server = EmbeddedPostgres(deep)
        server.start()
        socket_dir = socket_directory(server)
        kill_server(deep)
        shutil.rmtree(socket_dir)
        # Possible after a cleanup of /tmp: the pid file of the dead server still names this directory.
        socket_dir.mkdir(mode=0o755)
        (socket_dir / ".s.PGSQL.5432").symlink_to(socket_directory(pg18.postgres) / ".s.PGSQL.5432")
        shutil.chown(socket_dir, "daemon")
        assert embedded.status(deep).state == "stopped"
        with pytest.raises(ConfigurationError, match="belongs to another user"):
            server.start()
        server.release()

    def test_the_variables_of_libpq_are_ignored(
        self, postgres: EmbeddedPostgres, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in {"PGHOST": "db.invalid", "PGHOSTADDR": "192.0.2.1", "PGPORT": "1", "PGUSER": "me"}.items():
            monkeypatch.setenv(name, value)
        postgres.start()
        assert ask(postgres, "SELECT current_user || current_database()") == "penstockpenstock"


class TestPaths:
    @pytest.mark.parametrize("name", ["with a space", 'it\'s, "100%" \\ #1; $HOME=ü'])
    def test_special_characters_in_the_path_work(self, copy_home: Callable[[str], Path], name: str) -> None:
        path = copy_home(name)
        with EmbeddedPostgres(path) as server:
            socket_dir = socket_directory(server)
            assert ask(server, "SHOW data_directory") == str(path / "pg18")
            assert embedded.status(path).state == "running"
        assert embedded.status(path).state == "stopped"
        if path not in socket_dir.parents:
            socket_dir.rmdir()

    def test_a_new_database_can_be_made_under_a_name_with_spaces(self, empty_home: Path) -> None:
        with EmbeddedPostgres(empty_home / "My Data" / "pen stock") as server:
            assert ask(server, "SELECT 1") == 1

    def test_a_link_leads_to_the_same_server(self, postgres: EmbeddedPostgres, home: Path, tmp_path: Path) -> None:
        postgres.start()
        (tmp_path / "link").symlink_to(home)
        assert EmbeddedPostgres(tmp_path / "link").start() == postgres.url

    def test_a_file_in_its_place_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ConfigurationError, match=r"cannot use .*file.*: Not a directory"):
            EmbeddedPostgres(tmp_path / "file").start()


class TestPermissions:
    @pytest.mark.parametrize("mode", [0o777, 0o1777])
    def test_a_directory_that_all_users_may_write_to_is_refused(self, empty_home: Path, mode: int) -> None:
        shared = empty_home / "shared"
        shared.mkdir()
        shared.chmod(mode)
        with pytest.raises(ConfigurationError, match=f"all users may write to {shared},.*such as {shared}/penstock"):
            EmbeddedPostgres(shared).start()
        assert stat.S_IMODE(shared.stat().st_mode) == mode
        with EmbeddedPostgres(shared / "penstock") as server:
            assert ask(server, "SELECT 1") == 1

    @as_root
    def test_the_directory_of_another_user_is_refused(self, empty_home: Path) -> None:
        theirs = empty_home / "theirs"
        theirs.mkdir(mode=0o755)
        shutil.chown(theirs, "nobody")
        output = run_python(
            """
            import os, pwd, sys
            from pathlib import Path
            from penstock.core.errors import ConfigurationError
            from penstock.db.embedded.server import EmbeddedPostgres

            os.setuid(pwd.getpwnam("daemon").pw_uid)
            try:
                EmbeddedPostgres(Path(sys.argv[1])).start()
            except ConfigurationError as error:
                print(error)
            """,
            theirs,
        )
        assert f"{theirs} belongs to another user" in output

    def test_files_are_private(self, postgres: EmbeddedPostgres, home: Path) -> None:
        postgres.start()
        for name in ("pg18", "run", "log"):
            assert stat.S_IMODE((home / name).stat().st_mode) == 0o700
        for name in ("control.lock", "users.lock", "server.lock", "startup.log"):
            assert stat.S_IMODE((home / name).stat().st_mode) == 0o600

    @as_root
    def test_an_error_names_the_directory_that_the_account_of_the_server_cannot_enter(self, empty_home: Path) -> None:
        closed = empty_home / "root's home"
        closed.mkdir(mode=0o700)
        quoted = re.escape(f"""'{empty_home}/root'"'"'s home'""")
        with pytest.raises(ConfigurationError, match=f"chmod o\\+x {quoted}`.*set PENSTOCK_DATA_DIR"):
            EmbeddedPostgres(closed / "data").start()
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700

    @as_root
    def test_an_error_names_programs_that_the_account_of_the_server_cannot_run(
        self, home: Path, tmp_path: Path
    ) -> None:
        closed = tmp_path / "venv"
        closed.mkdir(mode=0o700)
        (closed / "bin").symlink_to(embedded.bundled_bin_dir())
        with pytest.raises(
            ConfigurationError, match=r"cannot enter .*install Penstock in a directory that it can read"
        ):
            EmbeddedPostgres(home, bin_dir=closed / "bin").start()

    @as_root
    def test_the_server_does_not_run_as_root(self, postgres: EmbeddedPostgres, home: Path) -> None:
        postgres.start()
        owner = pwd.getpwuid((home / "pg18").stat().st_uid).pw_name
        assert psutil.Process(running_pid(home)).username() == owner != "root"
