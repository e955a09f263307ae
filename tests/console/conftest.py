"""A console on a fresh database for the tests of a file, and a page in a real Chromium for each test.

``console``      the process, with access off; one for a file, so that tests share what is in its database
``page``         a page at desktop size; the test fails if the browser reports an error
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from scripts.install_chromium import FLAGS, MISSING, find_chromium
from tests.console.browsing import open_page
from tests.console.running import Running, console_on
from tests.servers import TEMPLATE, Server

T = TypeVar("T")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for a file: while it is there, a loop of its own runs, in which no asynchronous test can."""
    program = find_chromium()
    if program is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="module")
def console(pg18: Server) -> Iterator[Running]:
    with pg18.fresh_database(TEMPLATE) as url, console_on(url) as running:
        yield running


@pytest.fixture
def page(browser: Browser, console: Running) -> Iterator[Page]:
    with open_page(browser, console.url) as opened:
        yield opened


def arrange(database_url: str, what: Callable[[Log], Awaitable[T]]) -> T:
    """Do something to the log of a database."""

    async def run() -> T:
        log = Log(Database(Settings(database_url=database_url)))
        await log.open()
        try:
            return await what(log)
        finally:
            await log.close()

    # Where playwright is, a loop of its own runs already.
    return asyncio.run(run()) if _is_idle() else _elsewhere(run)


def _is_idle() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def _elsewhere(run: Callable[[], Awaitable[T]]) -> T:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(_awaited(run))).result()


async def _awaited(run: Callable[[], Awaitable[T]]) -> T:
    return await run()
