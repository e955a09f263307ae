"""A webhook receiver on a real socket that can fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

#: How the receiver responds: a status, a status with headers, or ``hang``, ``reset`` or ``endless`` (a 200 whose body
#: does not end).
Answer = int | str | tuple[int, dict[str, str]]


@dataclass
class Request:
    headers: dict[str, str]
    body: bytes
    answered: Answer
    #: The names of all headers, with repetitions.
    names: list[str]

    @property
    def events(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = json.loads(self.body)["events"]
        return events


@dataclass
class Receiver:
    """Records all requests, and responds 200 unless ``behave`` returns another response."""

    url: str = ""
    behave: Callable[[list[dict[str, Any]]], Answer] = lambda events: 200
    requests: list[Request] = field(default_factory=list)

    def taken(self) -> list[dict[str, Any]]:
        """Return the events of accepted requests, without repetitions."""
        seen: dict[str, dict[str, Any]] = {}
        for request in self.requests:
            if request.answered == 200:
                for event in request.events:
                    seen.setdefault(event["id"], event)
        return list(seen.values())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers["content-length"]))
        answer = self.behave(json.loads(body)["events"])
        names = [line.partition(":")[0].lower() for line in head[1:] if line]
        self.requests.append(Request(headers, body, answer, names))
        if answer == "hang":
            await asyncio.Event().wait()
        if answer == "endless":
            writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 1000\r\n\r\nok")
            await asyncio.Event().wait()
        if answer == "reset":
            writer.transport.abort()
            return False
        status, more = answer if isinstance(answer, tuple) else (int(answer), {})
        lines = [f"HTTP/1.1 {status} X", "content-length: 2", *(f"{name}: {value}" for name, value in more.items())]
        writer.write("\r\n".join([*lines, "", "ok"]).encode())
        await writer.drain()
        return True


@asynccontextmanager
async def run_receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    tasks: set[asyncio.Task[None]] = set()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(receiver.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    try:
        yield receiver
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
