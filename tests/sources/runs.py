"""Runs sources in tests."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.log.log import Log
from penstock.sources import Source, SourceRunner
from tests.conditions import eventually_async
from tests.log.logs import drain


async def run_source(log: Log, queue: str, source: Source, **options: Any) -> SourceRunner:
    runner = SourceRunner(log, source, queue, **{"name": f"source of {queue}", **options})
    await runner.run(idle_seconds=0.3)
    return runner


async def data(log: Log, queue: str) -> list[Any]:
    return [event.data for event in await drain(log, queue)]


@asynccontextmanager
async def follow_source(log: Log, queue: str, source: Source, **options: Any) -> AsyncIterator[Callable[[int], Any]]:
    """Run a source that is followed; yield a function that waits until a number of events are pushed."""
    runner = SourceRunner(log, source, queue, name=queue, **options)
    running = asyncio.create_task(runner.run())

    async def wait_for_pushed(count: int) -> None:
        async def is_pushed() -> object:
            return runner.pushed == count or (running.done() and running.result())

        await eventually_async(is_pushed)

    try:
        yield wait_for_pushed
    finally:
        runner.stop()
        await running


def lines(*numbers: int) -> str:
    return "".join(f'{{"n": {n}}}\n' for n in numbers)


def make_old(path: Path) -> None:
    """Set the modification time of a file to an hour ago."""
    hour = time.time() - 3600
    os.utime(path, (hour, hour))


async def numbers(log: Log, queue: str) -> list[int]:
    return [item["n"] for item in await data(log, queue)]


RUNNER_SCRIPT = """
import asyncio, sys
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.sources import Ndjson, SourceRunner
async def main(url, queue, path):
    log = await Log(Database(Settings(database_url=url))).open()
    await SourceRunner(log, Ndjson(path, follow=True), queue, name=queue, batch=20).run()
asyncio.run(main(*sys.argv[1:]))
"""


def start_process(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command)
