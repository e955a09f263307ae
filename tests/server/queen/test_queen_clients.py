"""Unmodified clients against real servers: two generations of queen-mq, and JavaScript's fetch.

The scripts in ``clients/`` run as processes with the client packages that ``make venv`` installs next to the
environment.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from tests.cli.command_line import CommandLine
from tests.server.server_process import RunningServer

pytestmark = pytest.mark.slow

VERSIONS = ("0.15", "2.6")
SCRIPTS = Path(__file__).parent / "clients"
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(version: str, script: Path, *arguments: str, url: str = "") -> str:
    """Run a script with this generation of the client and return its output."""
    packages = Path(sys.prefix) / f"queen-{version}"
    assert packages.is_dir(), f"{packages} is missing: run `make venv`"
    environment = {**os.environ, "PYTHONPATH": str(packages), "PENSTOCK_URL": url}
    command = [sys.executable, "-P", str(script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_core_of_the_client(version: str, queen_server: RunningServer) -> None:
    run(version, SCRIPTS / "core.py", queen_server.url, version)


def test_streams_with_several_workers(
    version: str, queen_server: RunningServer, other_server: RunningServer, queen_url: str
) -> None:
    run(version, SCRIPTS / "streams.py", version, queen_server.url, other_server.url)
    with psycopg.connect(queen_url) as connection:
        found = connection.execute(
            "SELECT query, key, window_start, window_end, value, updated_at FROM penstock.state WHERE query LIKE %s",
            [f"streams{version}-%"],
        ).fetchall()
    by_query = Counter(row[0].split("-")[1] for row in found)
    # One bucket for each tenant of the gates, and the open window of each key.
    assert (by_query["gate"], by_query["sums"], by_query["quota"], by_query["idle"]) == (1, 4, 2, 0)
    (gate,) = [row for row in found if row[0].endswith("-gate")]
    assert (gate[1], gate[2]) == ("tenant-A", None)
    assert gate[4]["allowedTotal"] == 30
    sums = sorted((row[1], row[2].timestamp(), row[3].timestamp(), row[4]["sum"]) for row in found if "sums" in row[0])
    assert sums == [(f"t{n}", 9960.0, 10020.0, 0) for n in range(4)]


@pytest.mark.long
def test_recipes_with_gates_aggregates_and_sql(
    version: str, queen_server: RunningServer, other_server: RunningServer, queen_url: str
) -> None:
    CommandLine(queen_url).ok("db", "compat")
    run(version, SCRIPTS / "recipes.py", version, queen_server.url, other_server.url, queen_url)


def test_rate_limiter_passes_all_messages_in_order(queen_server: RunningServer) -> None:
    output = run("0.15", EXAMPLES / "queen" / "rate_limiter.py", url=queen_server.url)
    (calls,) = [line.removeprefix("calls: ") for line in output.splitlines() if line.startswith("calls: ")]
    assert ast.literal_eval(calls) == list(range(30))


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_javascript_producer_and_consumers_with_fetch(queen_server: RunningServer) -> None:
    environment = {**os.environ, "PENSTOCK_URL": queen_server.url, "IDLE_MS": "500"}

    def node(script: str, *arguments: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
        command = ["node", str(EXAMPLES / "javascript" / script), *arguments]
        return subprocess.Popen(command, env=environment, stdout=stdout, text=True)

    for stored, known in ((10, 0), (0, 10)):
        producer = node("producer.js", "90")
        output, _ = producer.communicate(timeout=60)
        assert producer.returncode == 0
        assert output.splitlines() == [f"customer-{n % 3}: {stored} stored, {known} known already" for n in range(9)]
    # Both consumers write to one pipe, so the lines of a customer are in the order of consumption.
    reading, writing = os.pipe()
    consumers = [node("consumer.js", stdout=writing) for _ in range(2)]
    os.close(writing)
    with os.fdopen(reading) as output_of_both:
        lines = output_of_both.read().splitlines()
    assert [consumer.wait(60) for consumer in consumers] == [0, 0]
    for customer in range(3):
        orders = [int(line.split()[-1]) for line in lines if line.startswith(f"customer-{customer} ")]
        assert orders == [n for n in range(90) if n // 10 % 3 == customer]


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_recipes_with_requests_of_the_javascript_client(queen_server: RunningServer) -> None:
    command = ["node", str(SCRIPTS / "recipes.mjs"), queen_server.url, "js-recipes"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
