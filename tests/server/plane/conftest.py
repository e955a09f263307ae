"""One server for all tests of a module, and names of queues that nobody else uses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import httpx
import pytest

from tests import servers
from tests.server.plane.speaking import Plane
from tests.server.serving import Serving, serving
from tests.servers import Server

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def plane_url(pg18: Server) -> Iterator[str]:
    with pg18.fresh_database(servers.TEMPLATE) as url:
        yield url


@pytest.fixture(scope="module")
def plane_server(plane_url: str) -> Iterator[Serving]:
    with serving(plane_url) as running:
        yield running


@pytest.fixture(scope="module")
def other_server(plane_url: str) -> Iterator[Serving]:
    """A second process on the same database: whatever one of them knows, the other has to find out."""
    with serving(plane_url) as running:
        yield running


@pytest.fixture
def plane(plane_server: Serving) -> Iterator[Plane]:
    with httpx.Client(base_url=plane_server.url, timeout=30) as client:
        yield Plane(client)


@pytest.fixture
def other(other_server: Serving) -> Iterator[Plane]:
    with httpx.Client(base_url=other_server.url, timeout=30) as client:
        yield Plane(client)


@pytest.fixture
def queue() -> str:
    return f"queue{next(_numbers)}"
