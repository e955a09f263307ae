"""Calls a user-defined function for many events concurrently and adds the fields that it returns."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from penstock.engine.worker.udf.call_timeout import UdfWatchdog
from penstock.engine.worker.udf.udf_batch import UdfBatch, UdfItem, copy_value
from penstock.stream.expression import takes_context
from penstock.stream.steps import EnrichCall


def enrich_items(step: EnrichCall, batch: UdfBatch) -> None:
    """Call the function of a step for each item, up to ``step.concurrency`` at a time."""
    function, retries = step.function, step.retries
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    with_context = takes_context(function)
    needs_backups = batch.needs_backups(retries)
    results: dict[int, Any] = {}
    #: The start time of each running call, on the clock of the event loop.
    running: dict[int, float] = {}

    async def call(index: int, item: UdfItem, attempt: int) -> Any:
        arguments: list[Any] = [item.value]
        if with_context:
            arguments.append(batch.context(step.name, item.source, attempt))
        # A call that never awaits anything leaves the loop no chance to do this.
        _reset_watchdog(watchdog, retries.timeout_seconds, running)
        awaitable = function(*arguments) if is_async else _call_in_thread(function, arguments)
        running[index] = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(retries.timeout_seconds or None):
                result = await awaitable
        finally:
            del running[index]
        if result is not None and not isinstance(result, dict):
            raise TypeError(f"the function of enrich returned a {type(result).__name__}; return a dict")
        return result or {}

    async def enrich(index: int, item: UdfItem, semaphore: asyncio.Semaphore) -> None:
        async with semaphore:
            backup = copy_value(item.value) if needs_backups else None
            for attempt in range(retries.limit + 1):
                try:
                    results[index] = await call(index, item, attempt)
                    return
                except (Exception, asyncio.CancelledError) as error:
                    if _is_cancelled():
                        raise
                    if attempt == retries.limit:
                        batch.add_failure(item.source, step.name, error, attempt + 1)
                    else:
                        await asyncio.sleep((attempt + 1) * retries.pause_seconds)
                        batch.restore_value(item, backup)

    async def enrich_all() -> None:
        asyncio.get_running_loop().set_default_executor(_AbandoningExecutor())
        semaphore = asyncio.Semaphore(step.concurrency)
        heartbeat = asyncio.create_task(_keep_resetting_watchdog(watchdog, retries.timeout_seconds, running))
        async with asyncio.TaskGroup() as group:
            for index, item in enumerate(batch.items):
                group.create_task(enrich(index, item, semaphore))
        heartbeat.cancel()

    with UdfWatchdog(retries.timeout_seconds) as watchdog:
        asyncio.run(enrich_all())
    batch.items = [
        UdfItem(item.source, {**item.value, **results[index]} if isinstance(item.value, dict) else results[index])
        for index, item in enumerate(batch.items)
        if index in results
    ]


def _is_cancelled() -> bool:
    """Tell a cancelled task from one that awaited something that was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _keep_resetting_watchdog(watchdog: UdfWatchdog, timeout_seconds: float, running: Mapping[int, float]) -> None:
    while timeout_seconds:
        _reset_watchdog(watchdog, timeout_seconds, running)
        await asyncio.sleep(min(timeout_seconds / 4, 1.0))


def _reset_watchdog(watchdog: UdfWatchdog, timeout_seconds: float, running: Mapping[int, float]) -> None:
    """Reset the watchdog while calls that time out also end. The first entry is the oldest call."""
    now = asyncio.get_running_loop().time()
    if now - next(iter(running.values()), now) < 2 * timeout_seconds:
        watchdog.start_call()


class _AbandoningExecutor(ThreadPoolExecutor):
    """Runs what user code sends to threads. Shutting it down does not wait for calls that timed out."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=True)


async def _call_in_thread(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Call a function in a thread of its own, which is abandoned when the call times out."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            # The event loop cannot pass on StopIteration, and exceptions such as SystemExit would end it.
            is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            future.set_exception(error if is_plain else RuntimeError(type(error).__name__))

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(future)
