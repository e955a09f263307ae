"""A client of live streams over Server-Sent Events."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class SseMessage:
    event: str
    id: str
    data: Any


class SseReader:
    """Reads the messages of a stream."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self) -> SseMessage:
        fields: dict[str, str] = {}
        async for line in self._lines:
            if line.startswith(":"):
                continue
            if not line:
                if "data" in fields:
                    return SseMessage(fields["event"], fields.get("id", ""), json.loads(fields["data"]))
                fields = {}
                continue
            name, _, value = line.partition(": ")
            fields[name] = value
        raise EOFError("the stream has ended")


@asynccontextmanager
async def open_stream(http: httpx.AsyncClient, path: str, last_id: str = "", **params: str) -> AsyncIterator[SseReader]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    async with http.stream("GET", path, params=params, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield SseReader(response.aiter_lines())


def apply_message(windows: dict[tuple[Any, ...], Any], message: SseMessage) -> None:
    """Apply a message to the known windows, as the documentation describes."""
    if message.event == "snapshot":
        windows.clear()
    for key in message.data.get("keys", ()):
        for name in [name for name in windows if name[0] == key]:
            del windows[name]
    for row in message.data.get("closed", ()):
        windows.pop((row["key"], row["window_start"], row["window_end"]), None)
    for row in message.data["rows"]:
        windows[row["key"], row["window_start"], row["window_end"]] = row


async def count_overruns(http: httpx.AsyncClient, kind: str) -> float:
    """Return how often subscribers were too slow since the server started."""
    return await read_counter(http, "penstock_live_overruns_total", kind)


async def count_reads(http: httpx.AsyncClient, kind: str) -> float:
    """Return the number of database reads for live streams since the server started."""
    return await read_counter(http, "penstock_live_reads_total", kind)


async def read_counter(http: httpx.AsyncClient, name: str, kind: str) -> float:
    values = re.findall(rf'^{name}{{kind="{kind}"}} (\S+)', (await http.get("/metrics")).text, re.MULTILINE)
    return sum(map(float, values))
