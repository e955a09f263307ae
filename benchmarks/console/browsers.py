"""Five pages of the console in Chromium, in a process of their own, which can be made to stand back.

``python -m benchmarks.console.browsers CONSOLE_URL`` does what it reads: ``open`` the pages, say how often each has
``moved``, ``close`` them. Each answer is one line of JSON.

No user's server pays for its users' browsers, and here there is one machine. At idle priority the kernel gives them
what nobody else wants. What the console does for them is the same: it sends, however late they read.
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

_PATIENCE_SECONDS = 90.0
_COUNT_MOVES = """() => {
    window.moves = 0
    const all = { subtree: true, childList: true, characterData: true, attributes: true }
    const isOfFrame = (node) => (node.closest ? node : node.parentElement)?.closest('main > header, main > footer')
    const count = (changes) => { window.moves += changes.some((each) => !isOfFrame(each.target)) ? 1 : 0 }
    new MutationObserver(count).observe(document.querySelector('main'), all)
}"""


class Browsers:
    """The outer side."""

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
        """Open the pages; answers when each shows something."""
        await self._ask("open")

    async def close(self) -> None:
        await self._ask("close")

    async def moved(self) -> dict[str, int]:
        """Return how often each page has changed since it was opened."""
        said: dict[str, int] = await self._ask("moved")
        return said

    @contextmanager
    def standing_back(self) -> Iterator[None]:
        """Give the browsers the lowest CPU priority, but not while they open, which could take too long."""
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
            # Where each session is a group to the scheduler, the group counts. Chromium has one of its own; the one of
            # this process is the server's too.
            with suppress(OSError):
                if _group_of(process.pid) != _group_of(os.getpid()):
                    Path(f"/proc/{process.pid}/autogroup").write_text(str(nice))

    def cpu_seconds(self) -> float:
        """CPU time of all that belongs to them so far."""
        return cpu_seconds(self._tree)

    async def _ask(self, what: str) -> Any:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the browsers have no pipes")
        self._process.stdin.write(f"{what}\n".encode())
        line = await asyncio.wait_for(self._process.stdout.readline(), _PATIENCE_SECONDS)
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
        await asyncio.wait_for(self._process.wait(), _PATIENCE_SECONDS)


def _group_of(pid: int) -> str:
    """``/autogroup-17 nice 0``, without what may change."""
    return Path(f"/proc/{pid}/autogroup").read_text().split()[0]


def _open(browser: Browser, console_url: str) -> dict[str, Page]:
    pages = {}
    for path in PAGES:
        context = browser.new_context(base_url=console_url, locale="en-GB")
        # One that has not been here before tells its zone, and loads the page again.
        context.add_cookies([{"name": "penstock_zone", "value": "UTC", "url": console_url}])
        page = pages[path] = context.new_page()
        page.set_default_timeout(_PATIENCE_SECONDS * 1000)
        page.goto(path)
        page.wait_for_selector(":is(.ps-card, .ps-empty):visible")
        page.evaluate(_COUNT_MOVES)
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
            answer: dict[str, int] = {}
            match line.strip():
                case "open":
                    pages = _open(browser, console_url)
                case "moved":
                    answer = {path: page.evaluate("window.moves") for path, page in pages.items()}
                case "close":
                    for context in browser.contexts:
                        context.close()
            print(json.dumps(answer), flush=True)
        browser.close()


if __name__ == "__main__":
    main()
