"""Five pages of the console in Chromium, in their own process, optionally at idle CPU priority.

``python -m benchmarks.console.browsers CONSOLE_URL`` runs the commands on standard input: ``open`` the pages, count the
``updates`` of each, ``close`` them. Each response is one line of JSON.

Browsers normally run on other machines than the server. At idle priority, they only get CPU time that no other process
wants. The console does the same work for them: it sends updates however late they are read.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.console.plan import PAGES
from benchmarks.engines.cpu import cpu_seconds
from scripts.install_chromium import FLAGS, MISSING, find_chromium

_TIMEOUT_SECONDS = 90.0
_COUNT_UPDATES = """() => {
    window.updates = 0
    const all = { subtree: true, childList: true, characterData: true, attributes: true }
    const edges = 'main > header, main > footer'
    const isHeaderOrFooter = (node) => (node.closest ? node : node.parentElement)?.closest(edges)
    const count = (changes) => { window.updates += changes.some((change) => !isHeaderOrFooter(change.target)) ? 1 : 0 }
    new MutationObserver(count).observe(document.querySelector('main'), all)
}"""


class Browsers:
    """Controls the process of the browsers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._tree = psutil.Process(process.pid)

    @classmethod
    async def start(cls, console_url: str) -> Self:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.console.browsers", console_url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return cls(process)

    async def open(self) -> None:
        """Open the pages. Returns when each has content."""
        await self._request("open")

    async def close(self) -> None:
        await self._request("close")

    async def updates(self) -> dict[str, int]:
        """Return how often each page has changed since it was opened."""
        counts: dict[str, int] = await self._request("updates")
        return counts

    @contextmanager
    def idle_priority(self) -> Iterator[None]:
        """Give the browsers idle CPU priority. It must not be used while pages open, which could take too long."""
        self._schedule(os.SCHED_IDLE, 19)
        try:
            yield
        finally:
            self._schedule(os.SCHED_OTHER, 0)

    def _schedule(self, policy: int, nice: int) -> None:
        for process in [self._tree, *self._tree.children(recursive=True)]:
            with suppress(OSError, psutil.NoSuchProcess):
                for thread in process.threads():
                    os.sched_setscheduler(thread.id, policy, os.sched_param(0))
            # With autogroup scheduling, the priority of the session counts. Chromium has its own session. This process
            # shares its session with the server.
            with suppress(OSError):
                if _group_of(process.pid) != _group_of(os.getpid()):
                    Path(f"/proc/{process.pid}/autogroup").write_text(str(nice))

    def cpu_seconds(self) -> float:
        """Return the CPU time of all browser processes so far."""
        return cpu_seconds(self._tree)

    async def _request(self, command: str) -> Any:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the browsers have no pipes")
        self._process.stdin.write(f"{command}\n".encode())
        line = await asyncio.wait_for(self._process.stdout.readline(), _TIMEOUT_SECONDS)
        if not line:
            raise RuntimeError(f"the browsers ended with {await self._process.wait()}")
        return json.loads(line)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), _TIMEOUT_SECONDS)


def _group_of(pid: int) -> str:
    """Return the group of a line such as ``/autogroup-17 nice 0``."""
    return Path(f"/proc/{pid}/autogroup").read_text().split()[0]


def _open(browser: Browser, console_url: str) -> dict[str, Page]:
    pages = {}
    for path in PAGES:
        context = browser.new_context(base_url=console_url, locale="en-GB")
        # Without this cookie, the page sends its time zone and reloads.
        context.add_cookies([{"name": "penstock_zone", "value": "UTC", "url": console_url}])
        page = pages[path] = context.new_page()
        page.set_default_timeout(_TIMEOUT_SECONDS * 1000)
        page.goto(path)
        page.wait_for_selector(":is(.ps-card, .ps-empty):visible")
        page.evaluate(_COUNT_UPDATES)
    return pages


def main() -> None:
    """Run the commands on standard input until it ends."""
    (console_url,) = sys.argv[1:]
    program = find_chromium()
    if program is None:
        raise SystemExit(MISSING)
    pages: dict[str, Page] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        for line in sys.stdin:
            response: dict[str, int] = {}
            match line.strip():
                case "open":
                    pages = _open(browser, console_url)
                case "updates":
                    response = {path: page.evaluate("window.updates") for path, page in pages.items()}
                case "close":
                    for context in browser.contexts:
                        context.close()
            print(json.dumps(response), flush=True)
        browser.close()


if __name__ == "__main__":
    main()
