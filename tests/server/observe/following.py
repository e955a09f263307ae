"""Readers of live streams, as a browser would be one."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Message:
    event: str
    id: str
    data: Any


class Reader:
    """Reads the messages of a stream of Server-Sent Events, one after the other."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self) -> Message:
        fields: dict[str, str] = {}
        async for line in self._lines:
            if line.startswith(":"):
                continue
            if not line:
                if "data" in fields:
                    return Message(fields["event"], fields.get("id", ""), json.loads(fields["data"]))
                fields = {}
                continue
            name, _, value = line.partition(": ")
            fields[name] = value
        raise EOFError("the stream is over")

    async def until(self, **facts: Any) -> Message:
        """The next message that says this."""
        while True:
            message = await self.next()
            if all(message.data.get(name) == value for name, value in facts.items()):
                return message


@asynccontextmanager
async def following(http: httpx.AsyncClient, path: str, last_id: str = "", **params: str) -> AsyncIterator[Reader]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    async with http.stream("GET", path, params=params, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Reader(answer.aiter_lines())


def apply(windows: dict[tuple[Any, ...], Any], message: Message) -> None:
    """What the documentation tells a reader to do with a message."""
    if message.event == "snapshot":
        windows.clear()
    for key in message.data.get("keys", ()):
        for name in [name for name in windows if name[0] == key]:
            del windows[name]
    for row in message.data.get("closed", ()):
        windows.pop((row["key"], row["window_start"], row["window_end"]), None)
    for row in message.data["rows"]:
        windows[row["key"], row["window_start"], row["window_end"]] = row


async def overruns(http: httpx.AsyncClient, kind: str) -> float:
    """How often readers were too slow, of this test and of those before it."""
    found = re.findall(
        rf'^penstock_live_overruns_total{{kind="{kind}"}} (\S+)', (await http.get("/metrics")).text, re.M
    )
    return sum(map(float, found))
