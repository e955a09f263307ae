from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from penstock.core.errors import ConfigurationError
from penstock.db.embedded.lock_file import LockFile
from tests.db.embedded_server import run_python


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.lock"


def is_free(path: Path) -> bool:
    lock = LockFile(path)
    try:
        return lock.try_alone()
    finally:
        lock.release()


def test_one_at_a_time(path: Path) -> None:
    lock = LockFile(path)
    lock.wait()
    assert not is_free(path)
    lock.release()
    assert is_free(path)


def test_those_who_share_it_keep_out_who_wants_it_alone(path: Path) -> None:
    one, two = LockFile(path), LockFile(path)
    one.wait(shared=True)
    two.wait(shared=True)
    assert not one.try_alone()
    two.release()
    assert one.try_alone()
    one.release()


def test_a_released_lock_is_free_although_the_file_is_still_open_elsewhere(path: Path) -> None:
    lock = LockFile(path)
    lock.wait()
    elsewhere = os.dup(lock.fd)
    lock.release()
    assert is_free(path)
    os.close(elsewhere)


def test_a_closed_lock_lasts_as_long_as_the_process_that_it_was_handed_on_to(path: Path) -> None:
    lock = LockFile(path)
    lock.wait()
    with subprocess.Popen(["sleep", "600"], pass_fds=[lock.fd]) as heir:
        lock.close()
        assert not is_free(path)
        heir.kill()
    assert is_free(path)


def test_a_forked_child_has_no_part_in_it(path: Path) -> None:
    output = run_python(
        """
        import os, sys
        from pathlib import Path
        from penstock.db.embedded.lock_file import LockFile

        lock = LockFile(Path(sys.argv[1]))
        lock.wait()
        forked, go_on = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.write(forked[1], b".")
            os.read(go_on[0], 1)
            os._exit(0)
        os.read(forked[0], 1)
        lock.close()
        print(LockFile(lock.path).try_alone())
        os.write(go_on[1], b".")
        os.wait()
        """,
        path,
    )
    assert output == "True\n"


def test_a_file_made_anew_is_another_lock(path: Path) -> None:
    lock = LockFile(path)
    assert lock.is_current()
    path.unlink()
    assert not lock.is_current()
    path.touch()
    assert not lock.is_current()
    lock.close()


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match=f"cannot use {path}"):
        LockFile(path)
    assert not (tmp_path / "elsewhere").exists()
