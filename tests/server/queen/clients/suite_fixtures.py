"""A pytest plugin with the fixtures that the suites of the clients use. Their source archives leave them out."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest_asyncio
from queen import Queen


@pytest_asyncio.fixture(loop_scope="function")
async def client() -> AsyncIterator[Queen]:
    queen = Queen(os.environ["QUEEN_SERVER_URL"])
    yield queen
    await queen.close()
