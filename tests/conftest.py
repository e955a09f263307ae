"""Fixtures that every test may use: real servers, and a fresh database for each test.

``database_url``        a database with Penstock's schema, on PostgreSQL 18
``empty_database_url``  a database without it
``..._any``             the same, and the test runs on each server that this machine has
``data_dir``            a directory for an embedded PostgreSQL of the test's own
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# So that a total that is wrong is shown beside the right one. Here, because other tests use it too.
pytest.register_assert_rewrite("tests.engine.crash.orders")

from tests import servers  # noqa: E402
from tests.servers import Server  # noqa: E402

# A JVM of a test lives for seconds: half of its processor time would go into code that is soon thrown away.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

ROOT = pytest.StashKey[Path]()


def reachable_directory() -> Path:
    """Make a directory with a short path, for sockets, that the account which runs PostgreSQL can enter."""
    # In memory where there is room: a server's files come and go with every test.
    memory = Path("/dev/shm")  # noqa: S108
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 4 * 1024**3
    path = Path(tempfile.mkdtemp(prefix="penstock-", dir=memory if roomy else None))
    path.chmod(0o711)
    return path


def pytest_configure(config: pytest.Config) -> None:
    # A worker of pytest-xdist is told by its controller, so that all share the servers.
    told = getattr(config, "workerinput", {}).get("penstock_root")
    config.stash[ROOT] = Path(told) if told else reachable_directory()


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
