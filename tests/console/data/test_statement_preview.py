"""Previews of views in a child process."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import psutil
import pytest

from penstock.console.data.statement_preview import PreviewFailed, StatementPreviews
from penstock.core.errors import Conflict
from penstock.core.settings import Settings
from penstock.log.write.encode.batch import Batch
from tests.conditions import eventually_async
from tests.log.logs import opened

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TOTALS = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"


def java_processes() -> set[int]:
    """The Java processes below this one."""
    return {each.pid for each in psutil.Process().children(recursive=True) if "java" in each.name()}


async def test_rows_are_exact_and_name_the_failed_events(database_url: str) -> None:
    async with opened(database_url) as log:
        await log.configure("orders")
        events = [("ada", "0.10"), ("ada", "12345678901234567890.25"), ("bob", "7")]
        data = [{"key": name, "data": {"customer": name, "amount": Decimal(amount)}} for name, amount in events]
        await log.push([Batch("orders", data)])
    before = java_processes()
    (preview,) = await StatementPreviews(Settings(database_url=database_url)).run(
        "CREATE QUEUE orders (customer string, amount decimal(30, 2)); " + TOTALS, 100
    )
    assert {row["customer"]: row["total"] for row in preview.rows} == {
        "ada": Decimal("12345678901234567890.35"),
        "bob": 7,
    }
    assert java_processes() == before


async def test_error_of_the_command_is_the_error_of_the_preview(database_url: str) -> None:
    previews = StatementPreviews(Settings(database_url=database_url))
    with pytest.raises(PreviewFailed, match="there is no queue 'orders'"):
        await previews.run(TOTALS, 100)


async def test_preview_that_takes_too_long_or_is_cancelled_ends_its_processes(database_url: str) -> None:
    before = java_processes()
    with pytest.raises(PreviewFailed, match="took longer than 10 ms"):
        await StatementPreviews(Settings(database_url=database_url), max_seconds=0.01).run(TOTALS, 100)
    previews = StatementPreviews(Settings(database_url=database_url))
    async with opened(database_url) as log:
        await log.configure("orders")
    running = asyncio.create_task(previews.run(TOTALS, 100))

    async def has_java() -> bool:
        return java_processes() != before

    await eventually_async(has_java)
    with pytest.raises(Conflict, match="another preview is running"):
        await previews.run(TOTALS, 100)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert java_processes() == before
