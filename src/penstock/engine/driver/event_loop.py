"""An event loop in a thread of its own, for a driver that Spark calls from threads of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")


class Background:
    """Runs coroutines for other threads."""

    def __init__(self, name: str) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()
        self._ready.wait()

    def run(self, coroutine: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Run a coroutine there and wait for its answer."""
        return self.begin(coroutine).result()

    def begin(self, coroutine: Coroutine[Any, Any, _Answer]) -> Future[_Answer]:
        """Run a coroutine there meanwhile."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _main(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._ready.set()
            self._loop.run_forever()
