"""Fixtures for all tests: PostgreSQL servers and a fresh database for each test.

``database_url``        a database with Penstock's schema, on PostgreSQL 18
``empty_database_url``  a database without the schema
``..._any``             the same, on each PostgreSQL version that this machine has
``data_dir``            a directory for an embedded PostgreSQL
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

# Shows both sides of a failed comparison in this helper, which several test packages use.
pytest.register_assert_rewrite("tests.engine.crash.orders")

from tests import servers  # noqa: E402
from tests.servers import Server  # noqa: E402

# The JVM of a test lives for seconds. The optimizing compiler would take half of its processor time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Tests start hundreds of Python processes. Without bytecode on disk, each one would compile the package.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell without job control ignores Ctrl-C in its background jobs, and nohup ignores a closed terminal. All processes
# of a test would inherit that.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for marker in {"spark", "browser"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(marker)
        if "engine/crash/" in item.nodeid:  # these start drivers as processes
            item.add_marker("spark")
    if hasattr(config, "workerinput"):
        # Workers take files in this order. A long one at the end would run alone.
        seconds: defaultdict[Path, float] = defaultdict(float)
        for item in items:
            seconds[item.path] += estimated_seconds(item)
        items.sort(key=lambda item: seconds[item.path], reverse=True)


def estimated_seconds(item: pytest.Item) -> float:
    """Estimate the duration of a test from its markers, for tests that are not ``long``."""
    if item.get_closest_marker("long") is not None:
        return 0.0
    if (timeout := item.get_closest_marker("timeout")) is not None:
        return float(timeout.args[0]) / 40
    weights = {"slow": 2.0, "browser": 2.0, "spark": 1.0}
    return max((weights.get(marker.name, 0.05) for marker in item.iter_markers()), default=0.05)


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
