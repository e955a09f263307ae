"""Data directories of an embedded PostgreSQL, and processes that use it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.db.embedded.server import EmbeddedPostgres
from tests.conftest import reachable_directory
from tests.db.embedded.server_process import User


@pytest.fixture(scope="session")
def used_home() -> Iterator[Path]:
    """A data directory whose server was started and stopped once. Copying it is faster than initdb."""
    path = reachable_directory()
    EmbeddedPostgres(path).start()
    EmbeddedPostgres(path).stop()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def empty_home(data_dir: Path) -> Iterator[Path]:
    """An empty data directory. Its server is stopped at the end."""
    yield data_dir
    EmbeddedPostgres(data_dir).stop()


@pytest.fixture
def home(empty_home: Path, used_home: Path) -> Path:
    """A data directory that was used before."""
    subprocess.run(["cp", "-a", f"{used_home}/.", empty_home], check=True)
    return empty_home


@pytest.fixture
def postgres(empty_home: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(empty_home)
    yield server
    server.release()


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
