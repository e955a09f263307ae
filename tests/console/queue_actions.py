"""Consumption of the events of a test's queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.read.pop_request import PopRequest
from tests.console.conftest import run_with_log
from tests.console.console_process import ConsoleProcess


def pop(console: ConsoleProcess, queue: str) -> list[Event]:
    async def read(log: Log) -> list[Event]:
        return await log.pop(PopRequest(queue, "billing", batch=100, partitions=10))

    return run_with_log(console.database_url, read)


def create_dead_letters(console: ConsoleProcess, queue: str, errors: Sequence[str]) -> list[int]:
    """Dead-letter one event per error, acknowledge all others, and return the newest id of each kind."""

    async def create(log: Log) -> list[int]:
        events = await log.pop(PopRequest(queue, "billing", batch=100, partitions=10))
        for event, error in zip(events, errors, strict=False):
            await log.ack([event], "dead_letter", error=error, traceback=f"Traceback\n  {error}")
        await log.ack(events[len(errors) :], True)
        return [kind.newest for kind in await log.dead_letter_kinds(queue)]

    return run_with_log(console.database_url, create)


def event_numbers(events: Sequence[Event]) -> list[Any]:
    return sorted(event.data["n"] for event in events)
