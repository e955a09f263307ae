"""Processes and threads that start, release and fork at the same time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from penstock.core.errors import DatabaseError
from penstock.db.embedded import server as embedded
from penstock.db.embedded.server import EmbeddedPostgres
from tests.db.embedded.server_process import User, ask, foreign_process, running_pid
from tests.python_process import run_python

pytestmark = pytest.mark.slow

START_AND_RELEASE = """
import sys
from pathlib import Path
import psycopg
from penstock.db.embedded.server import EmbeddedPostgres

for _ in range(int(sys.argv[2])):
    with EmbeddedPostgres(Path(sys.argv[1])) as server:
        with psycopg.connect(server.url) as connection:
            connection.execute("SELECT 1")
"""


def find_servers(home: Path) -> list[psutil.Process]:
    servers = []
    for process in psutil.process_iter():
        try:
            if process.name() == "postgres" and str(home / "pg18") in process.cmdline():
                servers.append(process)
        except psutil.Error:
            continue
    return servers


class TestConcurrentUse:
    def test_processes_that_start_and_release_always_have_a_server(self, home: Path) -> None:
        command = [sys.executable, "-c", START_AND_RELEASE, str(home), "5"]
        running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
        errors = [process.communicate()[1] for process in running]
        assert [process.returncode for process in running] == [0, 0, 0], "".join(errors)
        assert embedded.status(home).state == "stopped"

    def test_threads_that_start_and_release_always_have_a_server(self, home: Path) -> None:
        failures: list[BaseException] = []

        def start_and_release() -> None:
            try:
                for _ in range(3):
                    with EmbeddedPostgres(home) as server:
                        assert ask(server, "SELECT 1") == 1
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=start_and_release) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert embedded.status(home).state == "stopped"

    def test_a_release_during_the_start_of_another_process_does_not_stop_the_server(
        self, home: Path, new_user: Callable[[], User]
    ) -> None:
        releasing = EmbeddedPostgres(home)
        releasing.start()
        releasing.stop()
        releasing.start()
        user = new_user()
        releasing.release()
        user.wait_started()
        assert embedded.status(home).state == "running"

    def test_a_recreated_directory_counts_its_users_again(self, empty_home: Path, new_user: Callable[[], User]) -> None:
        server = EmbeddedPostgres(empty_home)
        server.start()
        EmbeddedPostgres(empty_home).stop()
        for path in empty_home.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        server.start()
        user = new_user()
        user.wait_started()
        user.leave()
        assert ask(server, "SELECT 1") == 1
        server.release()
        assert embedded.status(empty_home).state == "stopped"

    def test_a_server_whose_directory_was_deleted_can_be_released(self, home: Path) -> None:
        server = EmbeddedPostgres(home)
        server.start()
        EmbeddedPostgres(home).stop()
        before = len(os.listdir("/dev/fd"))
        for path in home.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        server.release()
        assert len(os.listdir("/dev/fd")) == before - 1


class TestOneServer:
    def test_data_of_a_server_in_another_container_is_not_touched(self, postgres: EmbeddedPostgres, home: Path) -> None:
        postgres.start()
        pid_file, pid = home / "pg18" / "postmaster.pid", running_pid(home)
        original = pid_file.read_text()
        with foreign_process(home) as other_process:
            # As seen from another container: the pid is that of another process, and the socket does not exist.
            changed = original.replace(str(pid), str(other_process.pid), 1)
            pid_file.write_text(changed)
            (home / "run" / ".s.PGSQL.5432").unlink()
            with pytest.raises(DatabaseError, match="perhaps in another container"):
                EmbeddedPostgres(home, start_timeout=0.2).start()
            assert pid_file.read_text() == changed
            assert [process.pid for process in find_servers(home)] == [pid]
            pid_file.write_text(original)
            other_process.kill()
        postgres.start()
        assert ask(postgres, "SELECT 1") == 1

    def test_a_start_that_times_out_leaves_no_server_running(self, home: Path) -> None:
        with pytest.raises(DatabaseError, match="for 0 seconds"):
            EmbeddedPostgres(home, start_timeout=0).start()
        while find_servers(home):
            time.sleep(0.01)
        assert embedded.status(home).state == "stopped"

    def test_a_start_waits_for_a_server_that_is_stopping(self, home: Path) -> None:
        with pytest.raises(DatabaseError):
            EmbeddedPostgres(home, start_timeout=0).start()
        with EmbeddedPostgres(home) as server:
            assert ask(server, "SELECT 1") == 1
            assert len(find_servers(home)) == 1


class TestFork:
    def test_a_forked_child_does_not_stop_the_server_of_its_parent(self, home: Path) -> None:
        output = run_python(
            """
            import os, sys
            from pathlib import Path
            from penstock.db.embedded import server as embedded

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

    def test_a_forked_child_that_starts_the_server_is_another_user(self, home: Path) -> None:
        output = run_python(
            """
            import os, sys
            from pathlib import Path
            from penstock.db.embedded import server as embedded

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

    def test_a_child_forked_during_a_start_in_another_thread_can_start_the_server(self, empty_home: Path) -> None:
        output = run_python(
            """
            import os, signal, sys, threading, time
            from pathlib import Path
            from penstock.db.embedded.server import EmbeddedPostgres

            home = Path(sys.argv[1])
            server = EmbeddedPostgres(home)
            starting = threading.Thread(target=server.start)
            starting.start()
            while not (home / "pgdata.tmp").exists():
                time.sleep(0.001)
            if os.fork() == 0:
                signal.alarm(60)
                server.start()
                server.release()
                os._exit(0)
            starting.join()
            print(os.waitstatus_to_exitcode(os.wait()[1]))
            """,
            empty_home,
        )
        assert output == "0\n"
        assert embedded.status(empty_home).state == "stopped"

    def test_a_forked_child_does_not_count_as_a_user(self, home: Path) -> None:
        output = run_python(
            """
            import os, sys
            from pathlib import Path
            from penstock.db.embedded import server as embedded

            home = Path(sys.argv[1])
            server = embedded.EmbeddedPostgres(home)
            server.start()
            go_on = os.pipe()
            if os.fork() == 0:
                os.read(go_on[0], 1)
                os._exit(0)
            server.release()
            print(embedded.status(home).state)
            with embedded.EmbeddedPostgres(home):
                print(embedded.status(home).state)
            os.write(go_on[1], b".")
            os.wait()
            """,
            home,
        )
        assert output.split() == ["stopped", "running"]
