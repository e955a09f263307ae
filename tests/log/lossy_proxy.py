"""A proxy for PostgreSQL that loses a response or delays a request on demand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

#: More responses than any call needs. A push with a key takes 20 to 25, because a response may come in several reads.
ANSWERS = 40


class Proxy:
    """Forwards everything, except that it can lose the n-th response and close its connection.

    It can also delay a request: the client loses its connection, and the server receives the request when the test
    calls :meth:`arrive`, as if it had been in a buffer on the way.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._connections: set[asyncio.Task[None]] = set()
        self._until_lost = 0
        self._straying: bytes | None = None
        self._lost_after: bytes | None = None
        self._arrive = asyncio.Event()
        self._over = asyncio.Event()
        #: Set when a request is being delayed.
        self.strayed = asyncio.Event()
        #: The number of lost responses.
        self.lost = 0

    def lose(self, answer: int) -> None:
        """Lose the n-th response from now on: 1 is the next."""
        self._until_lost = answer

    def lose_answer_to(self, containing: bytes) -> None:
        """Lose the response to the next message that contains these bytes."""
        self._lost_after = containing

    def stop_losing(self) -> None:
        self._until_lost = 0

    def stray(self, containing: bytes = b"") -> None:
        """Delay the next message that contains these bytes, and close the connection of its sender."""
        self._straying = containing

    def arrive(self) -> None:
        """Forward the delayed message to the server."""
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
            pass  # happens only at the end of the test
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
                if self._lost_after is not None and self._lost_after in some:
                    self._lost_after = None
                    self._until_lost = 1
                there.write(some)
                await there.drain()
                if strays:
                    await self._over.wait()  # keep the connection of the server open, which gets no client

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
    """Start a proxy for the server of a URI. Yield the proxy and a URI that uses it."""
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
    """Run an attempt repeatedly, and lose another of its responses each time, until each was lost once."""
    for answer in range(1, ANSWERS + 1):
        before = proxy.lost
        proxy.lose(answer)
        async with asyncio.timeout(10):
            await attempt(answer)
        proxy.stop_losing()
        if proxy.lost == before:
            assert answer > 1
            return
    raise AssertionError(f"an attempt takes more than {ANSWERS} responses")
