"""Two server processes on one database for all tests of a worker, and a new queue name for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import httpx
import pytest

from tests import servers
from tests.server.queen.client import QueenClient
from tests.server.server_process import RunningServer, run_server
from tests.servers import Server

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def queen_url(pg18: Server) -> Iterator[str]:
    with pg18.fresh_database(servers.TEMPLATE) as url:
        yield url


@pytest.fixture(scope="session")
def queen_server(queen_url: str) -> Iterator[RunningServer]:
    with run_server(queen_url, ["--queen-push-wait-seconds", "0.5"]) as running:
        yield running


@pytest.fixture(scope="session")
def other_server(queen_url: str) -> Iterator[RunningServer]:
    """A second process on the same database. It has none of the caches of the first one."""
    with run_server(queen_url) as running:
        yield running


@pytest.fixture
def queen(queen_server: RunningServer) -> Iterator[QueenClient]:
    with httpx.Client(base_url=queen_server.url, timeout=30) as client:
        yield QueenClient(client)


@pytest.fixture
def other_queen(other_server: RunningServer) -> Iterator[QueenClient]:
    with httpx.Client(base_url=other_server.url, timeout=30) as client:
        yield QueenClient(client)


@pytest.fixture
def queue() -> str:
    return f"queue{next(_numbers)}"
