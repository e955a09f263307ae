"""Running the Python callables of a stream over events, each on its own: one that fails costs its event alone."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import inspect
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from penstock.core import json
from penstock.stream.context import Context
from penstock.stream.expression import takes_context
from penstock.stream.steps import Call, Filter, FlatMap, Foreach, Map, Retries, Step

_T = TypeVar("_T")

_HERE = os.path.dirname(__file__)
#: What is kept of an error and of its traceback.
_LONGEST = 8_000


@dataclass(frozen=True, slots=True)
class Failure:
    """An event that a stage could not process."""

    partition: int
    offset: int
    stage: str
    error: str
    traceback: str | None = None
    attempts: int = 1


@dataclass(slots=True)
class Item:
    """An event on its way through the callables."""

    #: The place of the event that it comes from.
    source: int
    value: Any


@dataclass(slots=True)
class Batch:
    """Events on their way, where they come from, and what failed."""

    query_id: str
    items: list[Item]
    #: Partition and offset of each source place.
    where: Callable[[int], tuple[int, int]]
    #: What a callable is told of a source place.
    metadata: Callable[[int], dict[str, Any]]
    failures: list[Failure] = field(default_factory=list)
    #: Events that a condition left out, by stage.
    dropped: Counter[str] = field(default_factory=Counter)
    told: dict[int, dict[str, Any]] = field(default_factory=dict)
    #: The event of a source place once more, as it was before any callable; None where nobody calls twice.
    again: Callable[[int], Any] | None = None

    def context(self, stage: str, source: int) -> Context:
        """The context of an event in a stage."""
        if source not in self.told:
            self.told[source] = self.metadata(source)
        return Context(self.query_id, stage, 0, self.told[source])

    def fail(self, source: int, stage: str, error: BaseException, attempts: int) -> None:
        """Take note of an event that a stage gave up on."""
        self.failures.append(failure(*self.where(source), stage, error, attempts))


def failure(partition: int, offset: int, stage: str, error: BaseException, attempts: int) -> Failure:
    """What is to be known of an event that a stage gave up on."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = "".join(traceback.format_exception(type(error), error, _user_frames(error)))
    return Failure(partition, offset, stage, text[:_LONGEST], frames[-_LONGEST:], attempts)


def _user_frames(error: BaseException) -> Any:
    """The traceback from the callable on: how it was called is nobody's concern."""
    frames = error.__traceback__
    while frames is not None and os.path.dirname(frames.tb_frame.f_code.co_filename) == _HERE:
        frames = frames.tb_next
    return frames or error.__traceback__


def run_steps(steps: Sequence[Step], batch: Batch) -> None:
    """Run the steps one after the other over all events of the batch."""
    for step in steps:
        if not batch.items:
            return
        if step is not steps[0]:
            batch.again = None
        match step:
            case Map():
                _each(step.name, step.expression, step.retries, batch, _replaced)
            case FlatMap():
                _each(step.name, step.expression, step.retries, batch, _many)
            case Filter():
                before = len(batch.items) + len(batch.failures)
                _each(step.name, step.condition, step.retries, batch, lambda value, answer: [value] if answer else [])
                batch.dropped[step.name] += before - len(batch.items) - len(batch.failures)
            case Foreach():
                _each(step.name, step.function, step.retries, batch, lambda value, answer: [value])
            case Call():
                _together(step.name, step.function, step.retries, step.concurrency, batch)
            case _:
                raise TypeError(f"{type(step).__name__} does not run in Python")
        _drop_failed(batch)


def _drop_failed(batch: Batch) -> None:
    """What one part of an event has failed in, the event has failed in."""
    if batch.failures:
        failed = {(failure.partition, failure.offset) for failure in batch.failures}
        batch.items = [item for item in batch.items if batch.where(item.source) not in failed]


def _replaced(value: Any, answer: Any) -> list[Any]:
    if answer is None:
        return []
    return list(answer) if isinstance(answer, list | tuple) else [answer]


def _many(value: Any, answer: Any) -> list[Any]:
    if answer is None:
        return []
    if isinstance(answer, dict | str | bytes):
        raise TypeError(f"flat_map's function returned a {type(answer).__name__}; it returns a list of events")
    return list(answer)


def _each(stage: str, function: Any, retries: Retries, batch: Batch, become: Callable[[Any, Any], list[Any]]) -> None:
    with_context = takes_context(function)
    copies = batch.again is None and retries.limit > 0
    kept: list[Item] = []

    def called(item: Item, copy: Any, attempt: int) -> list[Any]:
        if attempt:
            item.value = _anew(item, batch, copy)
        if with_context:
            ctx = batch.context(stage, item.source)
            ctx.attempt = attempt
            answer = function(item.value, ctx)
        else:
            answer = function(item.value)
        # A function with a yield in it only runs now.
        return become(item.value, answer)

    with Watch(retries.timeout_seconds) as watch:
        for item in batch.items:
            copy = _copied(item.value) if copies else None
            try:
                values = watch.tried(partial(called, item, copy), retries)
            except Exception as error:
                batch.fail(item.source, stage, error, retries.limit + 1)
            else:
                kept += [Item(item.source, value) for value in values]
    batch.items = kept


def _copied(value: Any) -> Any:
    """An event that another callable has made, of whatever it likes; None if that cannot be copied."""
    try:
        return _twin(value)
    except Exception:
        return None


def _twin(value: Any) -> Any:
    match value:
        case None | str() | int() | float():
            return value
        case dict() if type(value) is dict:
            return {name: _twin(inner) for name, inner in value.items()}
        case list() if type(value) is list:
            return [_twin(inner) for inner in value]
        case _:
            return deepcopy(value)


def _anew(item: Item, batch: Batch, copy: Any) -> Any:
    """The event once more: a callable that raised may have changed it on its way there."""
    if batch.again is not None:
        return batch.again(item.source)
    return item.value if copy is None else _copied(copy)


def _together(stage: str, function: Callable[..., Any], retries: Retries, concurrency: int, batch: Batch) -> None:
    """Call a function for many events at a time and add the fields it answers with."""
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    with_context = takes_context(function)
    copies = batch.again is None and retries.limit > 0
    answers: dict[int, Any] = {}
    #: Since when each call runs, on the loop's clock.
    running: dict[int, float] = {}

    async def one(place: int, item: Item, gate: asyncio.Semaphore) -> None:
        async with gate:
            copy = _copied(item.value) if copies else None
            for attempt in range(retries.limit + 1):
                try:
                    arguments: list[Any] = [item.value]
                    if with_context:
                        ctx = batch.context(stage, item.source)
                        ctx.attempt = attempt
                        arguments.append(ctx)
                    # One that never waits for anything leaves the loop no turn to do this in between.
                    _beat(watch, retries.timeout_seconds, running)
                    call = function(*arguments) if is_async else _in_thread(function, arguments)
                    running[place] = asyncio.get_running_loop().time()
                    try:
                        async with asyncio.timeout(retries.timeout_seconds or None):
                            answer = await call
                    finally:
                        del running[place]
                    if answer is not None and not isinstance(answer, dict):
                        raise TypeError(f"enrich's function returned a {type(answer).__name__}; it returns a dict")
                    answers[place] = answer or {}
                    return
                except (Exception, asyncio.CancelledError) as error:
                    if _is_ended():
                        raise
                    if attempt == retries.limit:
                        batch.fail(item.source, stage, error, attempt + 1)
                    else:
                        await asyncio.sleep((attempt + 1) * retries.pause_seconds)
                        item.value = _anew(item, batch, copy)

    async def all_of_them() -> None:
        asyncio.get_running_loop().set_default_executor(_Unawaited())
        gate = asyncio.Semaphore(concurrency)
        beat = asyncio.create_task(_keep_beating(watch, retries.timeout_seconds, running))
        async with asyncio.TaskGroup() as group:
            for place, item in enumerate(batch.items):
                group.create_task(one(place, item, gate))
        beat.cancel()

    with Watch(retries.timeout_seconds) as watch:
        asyncio.run(all_of_them())
    batch.items = [
        Item(item.source, {**item.value, **answers[place]} if isinstance(item.value, dict) else answers[place])
        for place, item in enumerate(batch.items)
        if place in answers
    ]


def _is_ended() -> bool:
    """Whether the task that runs is itself cancelled, and not only something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _keep_beating(watch: Watch, seconds: float, running: Mapping[int, float]) -> None:
    """Let the watch begin anew while the loop turns."""
    while seconds:
        _beat(watch, seconds, running)
        await asyncio.sleep(min(seconds / 4, 1.0))


def _beat(watch: Watch, seconds: float, running: Mapping[int, float]) -> None:
    """Let the watch begin anew, if calls that are given up end; the first is the one that has run longest."""
    now = asyncio.get_running_loop().time()
    if now - next(iter(running.values()), now) < 2 * seconds:
        watch.begin()


class _Unawaited(ThreadPoolExecutor):
    """For what calls hand over to threads themselves: nobody waits for that either, once they are given up."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more."""
        super().shutdown(wait=False, cancel_futures=True)


async def _in_thread(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Call a function in a thread of its own, which nobody waits for if it takes too long."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Any] = loop.create_future()

    def settle(answer: Any, error: BaseException | None) -> None:
        if answered.done():
            return
        if error is None:
            answered.set_result(answer)
        else:
            answered.set_exception(error)

    def work() -> None:
        answer: Any = None
        problem: BaseException | None = None
        try:
            answer = function(*arguments)
        except BaseException as error:
            # What would end the loop, or what it takes for an end of its own, is an error of the call like any other.
            is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            problem = error if is_plain else RuntimeError(type(error).__name__)
        # The loop has gone if the call was given up: then nobody asks any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, answer, problem)

    threading.Thread(target=work, daemon=True).start()
    return await answered


class Watch:
    """Ends the worker when a call takes longer than it may: nothing else ends code that hangs."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._pause = min(seconds, 1.0)
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        if self._seconds:
            self._thread = threading.Thread(target=self._look, daemon=True)
            self._wind_up()
            self._thread.start()
        return self

    def begin(self) -> None:
        """A call begins."""
        self._since = time.monotonic()

    def end(self) -> None:
        """It is over."""
        self._since = None

    def tried(self, call: Callable[[int], _T], retries: Retries) -> _T:
        """What a call answers at last, which is told how often it has failed; or raise its last error."""
        attempt = 0
        while True:
            self.begin()
            try:
                return call(attempt)
            except Exception:
                if attempt == retries.limit:
                    raise
            finally:
                self.end()
            attempt += 1
            time.sleep(attempt * retries.pause_seconds)

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._done.set()
            self._thread.join()
            faulthandler.cancel_dump_traceback_later()

    def _look(self) -> None:
        while not self._done.wait(self._pause):
            self._wind_up()
            since = self._since
            if since is not None and time.monotonic() - since > self._seconds:
                print(f"penstock: a callable took longer than {self._seconds:g} s", file=sys.stderr, flush=True)
                os._exit(75)

    def _wind_up(self) -> None:
        """A regular expression can hold the interpreter, and with it this thread: then a clock outside of it rings.

        A process has one, and nobody is told what it was set to: timers of others, as Spark's for tracebacks, end here.
        """
        faulthandler.dump_traceback_later(self._seconds + 2 * self._pause, file=2, exit=True)


def encode_items(batch: Batch, stage: str) -> tuple[list[bytes], list[int]]:
    """The events as lines of JSON with their source places; one that JSON cannot hold has failed in the stage."""
    encoded: dict[int, bytes] = {}
    for item in batch.items:
        try:
            encoded[id(item)] = json.encode(item.value)
        except Exception as error:
            batch.fail(item.source, stage, error, 1)
    _drop_failed(batch)
    return [encoded[id(item)] for item in batch.items], [item.source for item in batch.items]
