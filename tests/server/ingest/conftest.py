"""Queues on the shared server, one per test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import httpx
import pytest

from penstock import SyncPenstock
from tests.server.ingest.push_client import CreateQueue, QueueClient

_numbers = count()


@pytest.fixture(scope="session")
def store(shared_url: str) -> Iterator[SyncPenstock]:
    with SyncPenstock(shared_url) as store:
        yield store


@pytest.fixture
def create_queue(client: httpx.Client, store: SyncPenstock) -> CreateQueue:
    def create(**options: object) -> QueueClient:
        name = f"pushed-{next(_numbers)}"
        partitions = options.pop("partitions", None)
        store.queue(name).config(options).create(partitions=partitions)  # type: ignore[arg-type]  # a number or None
        return QueueClient(client, store, name)

    return create
