"""Fixtures: a console on a fresh database for each module, and a Chromium page for each test.

``console``      the process, without access control; the tests of a module share its database
``page``         a page at desktop size; the test fails if the browser reports an error
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from scripts.install_chromium import FLAGS, MISSING, find_chromium
from tests.console.browser import new_context, set_time_zone, watched_page
from tests.console.console_process import ConsoleProcess, start_console
from tests.servers import TEMPLATE, Server

T = TypeVar("T")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a module. Its event loop rules out asynchronous tests in the same module."""
    executable = find_chromium()
    if executable is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def console(pg18: Server) -> Iterator[ConsoleProcess]:
    with pg18.fresh_database(TEMPLATE) as url, start_console(url) as running:
        yield running


@pytest.fixture(scope="module")
def desktop(browser: Browser, console: ConsoleProcess) -> Iterator[BrowserContext]:
    """A browser context. It has the console's scripts in its cache after the first test of a module."""
    with new_context(browser, console.url) as context:
        yield context


@pytest.fixture
def page(desktop: BrowserContext, console: ConsoleProcess) -> Iterator[Page]:
    desktop.clear_cookies()
    desktop.clear_permissions()
    set_time_zone(desktop, console.url)
    with watched_page(desktop, console.url) as opened:
        yield opened


def run_with_log(database_url: str, function: Callable[[Log], Awaitable[T]]) -> T:
    """Run a function with an open log of the database."""

    async def run() -> T:
        log = Log(Database(Settings(database_url=database_url)))
        await log.open()
        try:
            return await function(log)
        finally:
            await log.close()

    # Playwright runs an event loop in this thread.
    return asyncio.run(run()) if _has_no_loop() else _run_in_thread(run)


def _has_no_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def _run_in_thread(run: Callable[[], Awaitable[T]]) -> T:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(_awaited(run))).result()


async def _awaited(run: Callable[[], Awaitable[T]]) -> T:
    return await run()
