from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from penstock.core.lock_file import LockFile
from tests.python_process import run_python


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.lock"


def is_free(path: Path) -> bool:
    lock = LockFile(path)
    try:
        return lock.try_acquire()
    finally:
        lock.release()


def test_only_one_holder_has_the_exclusive_lock(path: Path) -> None:
    lock = LockFile(path)
    lock.acquire()
    assert not is_free(path)
    lock.release()
    assert is_free(path)


def test_shared_locks_exclude_an_exclusive_lock(path: Path) -> None:
    one, two = LockFile(path), LockFile(path)
    one.acquire(shared=True)
    two.acquire(shared=True)
    assert not one.try_acquire()
    two.release()
    assert one.try_acquire()
    one.release()


def test_release_unlocks_a_file_that_is_open_twice(path: Path) -> None:
    lock = LockFile(path)
    lock.acquire()
    duplicate = os.dup(lock.fd)
    lock.release()
    assert is_free(path)
    os.close(duplicate)


def test_a_closed_lock_lasts_until_the_process_that_inherited_it_ends(path: Path) -> None:
    lock = LockFile(path)
    lock.acquire()
    with subprocess.Popen(["sleep", "600"], pass_fds=[lock.fd]) as process:
        lock.close()
        assert not is_free(path)
        process.kill()
    assert is_free(path)


def test_a_forked_child_does_not_hold_the_lock(path: Path) -> None:
    output = run_python(
        """
        import os, sys
        from pathlib import Path
        from penstock.core.lock_file import LockFile

        lock = LockFile(Path(sys.argv[1]))
        lock.acquire()
        forked, go_on = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.write(forked[1], b".")
            os.read(go_on[0], 1)
            os._exit(0)
        os.read(forked[0], 1)
        lock.close()
        print(LockFile(lock.path).try_acquire())
        os.write(go_on[1], b".")
        os.wait()
        """,
        path,
    )
    assert output == "True\n"


def test_a_deleted_and_recreated_file_is_another_lock(path: Path) -> None:
    lock = LockFile(path)
    assert lock.is_current()
    path.unlink()
    assert not lock.is_current()
    path.touch()
    assert not lock.is_current()
    lock.close()


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=str(path)):
        LockFile(path)
    assert not (tmp_path / "elsewhere").exists()
