"""The queue that the tests of a page use."""

from __future__ import annotations

import pytest

from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from tests.console.conftest import run_with_log
from tests.console.console_process import ConsoleProcess


@pytest.fixture
def queue(console: ConsoleProcess, request: pytest.FixtureRequest) -> str:
    """A queue with ten events of two keys, and a group that has read none of them."""
    name = str(request.node.name).removeprefix("test_")[:60]

    async def make(log: Log) -> None:
        await log.configure(name, {"retry_limit": 0})
        await log.subscribe(name, "billing")
        events = [{"data": {"n": n}, "key": "ada" if n % 2 else "bob", "id": f"e-{n}"} for n in range(10)]
        await log.push([Batch(name, events)])

    run_with_log(console.database_url, make)
    return name
