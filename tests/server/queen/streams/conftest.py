from __future__ import annotations

import pytest

from tests.server.queen.client import QueenClient
from tests.server.queen.streams.stream_query import StreamQuery


@pytest.fixture
def query(queen: QueenClient, queue: str) -> StreamQuery:
    """A query with three messages in one partition of its source."""
    queen.push(queue, range(3), "p")
    return StreamQuery(queen, queue)
