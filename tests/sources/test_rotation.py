"""A log that is rotated while the process that reads it is killed repeatedly."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from penstock.log.log import Log
from penstock.sources import Ndjson, SourceRunner
from tests.sources.runs import RUNNER_SCRIPT, numbers, start_process

SECONDS = 25


def write(path: Path, way: str, until: float) -> int:
    """Write numbers like a program that opens its log again some time after a rotation."""
    count = itertools.count(1)
    n = 0
    file = path.open("a", buffering=1)
    for rotation in range(1, 1000):
        rotate_at = time.monotonic() + 0.5 + random.random()
        while time.monotonic() < rotate_at:
            n = next(count)
            file.write(f'{{"n": {n}}}\n')
            time.sleep(0.001)
        if time.monotonic() > until:
            break
        away = path.with_name(f"{path.name}-{20260000 + rotation}")
        if way == "rename":
            path.rename(away)
            path.touch()
            for n in itertools.islice(count, 50):
                file.write(f'{{"n": {n}}}\n')
            file.close()
            file = path.open("a", buffering=1)
        else:
            away.write_bytes(path.read_bytes())
            file.truncate(0)
    file.close()
    return n + 1


@pytest.mark.long
@pytest.mark.parametrize("way", ["rename", "copy and truncate"])
async def test_every_line_of_a_rotated_log_is_pushed_once(
    log: Log, queue: str, sinks_url: str, tmp_path: Path, way: str
) -> None:
    path = tmp_path / "app.log"
    path.write_text('{"n": 0}\n')
    await SourceRunner(log, Ndjson(path), queue, name=queue).run()
    writing = asyncio.create_task(asyncio.to_thread(write, path, way, time.monotonic() + SECONDS))
    while not writing.done():
        process = start_process([sys.executable, "-c", RUNNER_SCRIPT, sinks_url, queue, str(path)])
        await asyncio.wait([writing], timeout=random.uniform(1, 4))
        process.send_signal(signal.SIGKILL)
        process.wait()
    await SourceRunner(log, Ndjson(path), queue, name=queue).run()

    assert await numbers(log, queue) == list(range(await writing))
