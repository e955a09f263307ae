"""Fixtures for all tests: PostgreSQL servers and a fresh database for each test.

``database_url``        a database with Penstock's schema, on PostgreSQL 18
``empty_database_url``  a database without the schema
``..._any``             the same, on each PostgreSQL version that this machine has
``data_dir``            a directory for an embedded PostgreSQL
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Shows both sides of a failed comparison in this helper, which several test packages use.
pytest.register_assert_rewrite("tests.engine.crash.orders")

from tests import servers  # noqa: E402
from tests.servers import Server  # noqa: E402

# The JVM of a test lives for seconds. The optimizing compiler would take half of its processor time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

ROOT = pytest.StashKey[Path]()


def reachable_directory() -> Path:
    """Create a directory with a short path, for sockets, that the account of PostgreSQL can enter."""
    # In memory if there is room, because tests write many files.
    memory = Path("/dev/shm")  # noqa: S108
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > 4 * 1024**3
    path = Path(tempfile.mkdtemp(prefix="penstock-", dir=memory if has_room else None))
    path.chmod(0o711)
    return path


def pytest_configure(config: pytest.Config) -> None:
    # A worker of pytest-xdist gets the directory from its controller, so that all workers share the servers.
    shared = getattr(config, "workerinput", {}).get("penstock_root")
    config.stash[ROOT] = Path(shared) if shared else reachable_directory()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in {"spark", "browser"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(marker)
        if "engine/crash/" in item.nodeid:  # these start drivers as processes
            item.add_marker("spark")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    node.workerinput["penstock_root"] = str(node.config.stash[ROOT])  # type: ignore[attr-defined]  # untyped xdist


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        servers.stop_all(config.stash[ROOT])
        shutil.rmtree(config.stash[ROOT])


@pytest.fixture(scope="session")
def pg18(pytestconfig: pytest.Config) -> Iterator[Server]:
    with servers.running("pg18", pytestconfig.stash[ROOT]) as server:
        yield server


@pytest.fixture(scope="session", params=list(servers.available()))
def server(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[Server]:
    with servers.running(request.param, pytestconfig.stash[ROOT]) as server:
        yield server


@pytest.fixture
def database_url(pg18: Server) -> Iterator[str]:
    with pg18.fresh_database(servers.TEMPLATE) as url:
        yield url


@pytest.fixture
def database_url_any(server: Server) -> Iterator[str]:
    with server.fresh_database(servers.TEMPLATE) as url:
        yield url


@pytest.fixture
def empty_database_url(pg18: Server) -> Iterator[str]:
    with pg18.fresh_database("template0") as url:
        yield url


@pytest.fixture
def empty_database_url_any(server: Server) -> Iterator[str]:
    with server.fresh_database("template0") as url:
        yield url


@pytest.fixture
def data_dir() -> Iterator[Path]:
    path = reachable_directory()
    yield path
    shutil.rmtree(path)
