"""A way to PostgreSQL that loses an answer, or delays what was sent, when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

#: More answers than any call takes. A request with a key that looks everything up takes 20 to 25: how many reads an
#: answer comes in differs from time to time.
ANSWERS = 40


class Proxy:
    """Passes everything on; the n-th answer from now is thrown away, and its connection with it.

    What is sent next can be strayed: the client loses its connection, and the server gets what was sent when the test
    says so, as if it had lain in a buffer on the way.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._connections: set[asyncio.Task[None]] = set()
        self._until_lost = 0
        self._straying: bytes | None = None
        self._arrive = asyncio.Event()
        self._over = asyncio.Event()
        #: Set when something has strayed.
        self.strayed = asyncio.Event()
        #: How many answers were lost.
        self.lost = 0

    def lose(self, answer: int) -> None:
        """Lose the n-th answer that comes back from now on: 1 is the next."""
        self._until_lost = answer

    def stop_losing(self) -> None:
        self._until_lost = 0

    def stray(self, containing: bytes = b"") -> None:
        """Hold back the next that is sent and holds these bytes, and cut off whoever sent it."""
        self._straying = containing

    def arrive(self) -> None:
        """Let what has strayed reach the server."""
        self._arrive.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        there: asyncio.StreamWriter | None = None
        pumps: list[asyncio.Task[None]] = []
        try:
            there_reader, there = await asyncio.open_unix_connection(self._server)
            pumps = [
                asyncio.create_task(self._pump_there(reader, there, writer)),
                asyncio.create_task(self._pump(there_reader, writer, counts=True)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # only at the end of the test
        finally:
            for pump in pumps:
                pump.cancel()
            for end in (writer, there):
                if end is not None:
                    end.close()
            self._connections.discard(task)

    async def close(self) -> None:
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        if connections:
            await asyncio.wait(connections)

    async def _pump_there(
        self, reader: asyncio.StreamReader, there: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while some := await reader.read(1 << 20):
                strays = self._straying is not None and self._straying in some
                if strays:
                    self._straying = None
                    client.close()
                    self.strayed.set()
                    await self._arrive.wait()
                there.write(some)
                await there.drain()
                if strays:
                    await self._over.wait()  # the server answers nobody, and may take its time

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool) -> None:
        with contextlib.suppress(OSError):
            while some := await reader.read(1 << 20):
                if counts and self._until_lost:
                    self._until_lost -= 1
                    if self._until_lost == 0:
                        self.lost += 1
                        return
                writer.write(some)
                await writer.drain()


@asynccontextmanager
async def proxied(url: str, directory: Path) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy before the server of a URI, and the URI that goes through it."""
    parts = conninfo_to_dict(url)
    proxy = Proxy(f"{parts['host']}/.s.PGSQL.{parts['port']}")
    through = f"postgresql://{parts['user']}@/{parts['dbname']}?host={quote(str(directory), safe='')}&port=5432"
    server = await asyncio.start_unix_server(proxy.serve, directory / ".s.PGSQL.5432")
    try:
        yield proxy, through
    finally:
        server.close()
        await proxy.close()


async def each_answer(proxy: Proxy, attempt: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Attempt it again and again, and lose another of its answers each time, until all were lost once."""
    for answer in range(1, ANSWERS + 1):
        before = proxy.lost
        proxy.lose(answer)
        async with asyncio.timeout(10):
            await attempt(answer)
        proxy.stop_losing()
        if proxy.lost == before:
            assert answer > 1
            return
    raise AssertionError(f"it takes more than {ANSWERS} answers")
