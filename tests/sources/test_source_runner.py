"""Each event is pushed once, whatever happens to the process and the database."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from penstock.core.errors import Conflict, InvalidRequest
from penstock.log.log import Log
from penstock.sources import Ndjson, Parquet, SourceRunner, list_sources
from tests.conditions import eventually_async
from tests.log.logs import letters, opened
from tests.log.lossy_proxy import proxied
from tests.sources.runs import RUNNER_SCRIPT, data, follow_source, lines, numbers, run_source, start_process

pytestmark = pytest.mark.slow


async def test_the_runner_retries_while_the_database_is_unreachable(
    sinks_url: str, log: Log, queue: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text(lines(0))
    async with (
        proxied(sinks_url, tmp_path) as (proxy, through),
        opened(through) as behind,
        follow_source(behind, queue, Ndjson(path, follow=True)) as pushed,
    ):
        await pushed(1)
        socket = tmp_path / ".s.PGSQL.5432"
        socket.rename(tmp_path / "away")
        await proxy.close()
        with path.open("a") as file:
            file.write(lines(1))

        async def tried() -> object:
            return sum(each.name == "penstock.sources" for each in caplog.records) >= 3

        await eventually_async(tried)
        (tmp_path / "away").rename(socket)
        await pushed(2)
    assert await numbers(log, queue) == [0, 1]


async def test_killed_runner_pushes_every_line_once(log: Log, queue: str, sinks_url: str, tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(3000)))

    async def read() -> int:
        return sum(each.events for each in await list_sources(log) if each.name == queue)

    process = start_process([sys.executable, "-c", RUNNER_SCRIPT, sinks_url, queue, str(path)])

    async def some() -> object:
        return await read() > 100

    await eventually_async(some)
    process.send_signal(signal.SIGKILL)
    process.wait()
    await run_source(log, queue, Ndjson(path), name=queue)

    assert [each["n"] for each in await data(log, queue)] == list(range(3000))


async def test_two_runners_of_one_source_push_every_line_once(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(200)))
    feeds = [SourceRunner(log, Ndjson(path), queue, name=queue, batch=5) for _ in range(2)]

    ends = await asyncio.gather(*(each.run() for each in feeds), return_exceptions=True)

    assert [type(end) for end in ends if end is not None] in ([], [Conflict])
    await run_source(log, queue, Ndjson(path), name=queue)
    assert [each["n"] for each in await data(log, queue)] == list(range(200))


async def test_a_file_in_another_format_is_refused(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text("nonsense\n" * 1100)
    with pytest.raises(InvalidRequest, match="probably not ndjson"):
        await run_source(log, queue, Ndjson(path))
    assert await letters(log, queue) == []
    made = await run_source(log, queue, Ndjson(path), batch=1000)
    assert (made.pushed, made.rejected) == (0, 1100)

    broken = tmp_path / "in.parquet"
    broken.write_bytes(b"nonsense")
    with pytest.raises(InvalidRequest, match="as Parquet"):
        await run_source(log, queue, Parquet(broken), name="broken")
