"""One server process for the tests of a module; each test has a queue of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import httpx
import pytest

from penstock import SyncPenstock
from tests.server.ingest.pushing import Door
from tests.server.serving import Serving, serving
from tests.servers import TEMPLATE, Server

_numbers = count()


@pytest.fixture(scope="module")
def module_url(pg18: Server) -> Iterator[str]:
    with pg18.fresh_database(TEMPLATE) as url:
        yield url


@pytest.fixture(scope="module")
def one_server(module_url: str) -> Iterator[Serving]:
    with serving(module_url) as running:
        yield running


@pytest.fixture(scope="module")
def store(module_url: str) -> Iterator[SyncPenstock]:
    with SyncPenstock(module_url) as q:
        yield q


@pytest.fixture(scope="module")
def client(one_server: Serving) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=one_server.url, timeout=60) as http:
        yield http


@pytest.fixture
def door(client: httpx.Client, store: SyncPenstock) -> Callable[..., Door]:
    def made(**options: object) -> Door:
        name = f"q{next(_numbers)}"
        partitions = options.pop("partitions", None)
        queue = store.queue(name).config(options)
        queue.create(partitions=partitions)  # type: ignore[arg-type]  # a number or None
        return Door(client, store, name)

    return made
