"""The test suites of Queen's Python clients, from their source archives and unmodified.

The archives come from the package index, by the version and the hashes in ``requirements/queen-*.txt``, and stay in
pytest's cache. They contain neither fixtures nor tests of the streams: ``clients/suite_fixtures.py`` has the fixtures,
and ``clients/streams.py`` tests the streams.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.server.access_server import JWT_SECRET, run_access_server
from tests.server.server_process import RunningServer, run_server
from tests.servers import TEMPLATE, Server

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
#: Suites of functions of the newer clients: KV, timers, locks, reads, and transactions with them.
NEWER = ["kv", "locks", "reads", "timers", "transaction_kv_timers"]


@pytest.fixture(scope="module")
def suite_server(pg18: Server) -> Iterator[RunningServer]:
    # Queues of the suites are encrypted.
    key = base64.b64encode(os.urandom(32)).decode()
    with pg18.fresh_database(TEMPLATE) as url, run_server(url, environ={"PENSTOCK_ENCRYPTION_KEYS": key}) as running:
        yield running


def unpack_sources(version: str, cache: Path) -> Path:
    """Return the directory of a client's unpacked source archive, which is downloaded unless the cache has it."""
    lock = (ROOT / "requirements" / f"queen-{version}.txt").read_text()
    pinned = re.search(r"^queen-mq==(\S+)( \\\n +--hash=\S+)+", lock, re.MULTILINE)
    assert pinned is not None
    archive = cache / f"queen_mq-{pinned[1]}.tar.gz"
    if not archive.exists():
        requirement = cache / f"queen-{version}.txt"
        requirement.write_text(pinned[0])
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "queen-mq"]
        command += ["--require-hashes", "--requirement", str(requirement), "--dest", str(cache)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and re.search("connection broken|timed out", done.stderr):
            pytest.skip(f"the source archive of queen-mq {pinned[1]} cannot be downloaded: there is no network")
        assert done.returncode == 0, done.stderr
    with tarfile.open(archive) as members:
        members.extractall(cache, filter="data")
    return cache / archive.name.removesuffix(".tar.gz")


@pytest.fixture
def cache(pytestconfig: pytest.Config) -> Path:
    assert pytestconfig.cache is not None
    return pytestconfig.cache.mkdir("queen-sources")


def count_passed(sources: Path, version: str, url: str, report: Path, *options: str, **environ: str) -> int:
    """Run tests of a client and return how many have passed, or fail with their output."""
    packages = Path(sys.prefix) / f"queen-{version}"
    assert packages.is_dir(), f"{packages} is missing: run `make venv`"
    plugins = Path(__file__).parent / "clients"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(packages), str(plugins)]),
        "QUEEN_SERVER_URL": url,
        "QUEEN_URL": url,
        **environ,
    }
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "suite_fixtures", "-p", "no:cacheprovider"]
    command += [f"--junit-xml={report}", *options]
    done = subprocess.run(command, cwd=sources, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (totals,) = ElementTree.parse(report).getroot()  # noqa: S314 - written by the process above
    counts = {name: int(totals.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    return counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]


@pytest.mark.parametrize(("version", "expected"), [("0.15", 60), ("2.6", 72)])
def test_core_suite(version: str, expected: int, suite_server: RunningServer, cache: Path, tmp_path: Path) -> None:
    sources = unpack_sources(version, cache)
    # Those of 0.15 for authentication call the stored procedures of its own server.
    others = [f"--ignore=tests/test_{name}.py" for name in ("auth", *NEWER)]
    passed = count_passed(sources, version, suite_server.url, tmp_path / "report", "tests", *others)
    assert passed == expected


def test_suites_of_newer_functions(suite_server: RunningServer, cache: Path, tmp_path: Path) -> None:
    sources = unpack_sources("2.6", cache)
    files = [f"tests/test_{name}.py" for name in NEWER]
    assert count_passed(sources, "2.6", suite_server.url, tmp_path / "report", *files) == 41


def test_suite_of_authentication(suite_server: RunningServer, pg18: Server, cache: Path, tmp_path: Path) -> None:
    """One of its tests needs a server without access control, the others one with it."""
    sources, report = unpack_sources("2.6", cache), tmp_path / "report"
    assert count_passed(sources, "2.6", suite_server.url, report, "tests/test_auth.py") == 1
    with pg18.fresh_database(TEMPLATE) as url, run_access_server(url, tmp_path) as access:
        assert count_passed(sources, "2.6", access.url, report, "tests/test_auth.py", JWT_SECRET=JWT_SECRET) == 2
