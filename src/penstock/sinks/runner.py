"""Many sinks in one process, each at its own pace."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.core.errors import ConfigurationError, InvalidOption, InvalidRequest
from penstock.core.settings import Overrides, Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.sinks.base import Sink
from penstock.sinks.options import Counters, Pace
from penstock.sinks.stats import Totals
from penstock.sinks.worker import Outlet
from penstock.stream.definition import Definition

_logger = logging.getLogger("penstock.sinks")

#: How long a batch that is being written may take once it is time to stop.
_STOP_SECONDS = 10.0


def pace_of(given: Mapping[str, Any]) -> Pace:
    """A pace by the names of its options, if they are that."""
    for name in given:
        if name not in Pace.__dataclass_fields__:
            raise InvalidOption(
                f"{name!r} is no option of a sink; there are {', '.join(Pace.__dataclass_fields__)}", option=name
            )
    return Pace(**given)


class Sinks:
    """Runs sinks on queues; a slow or dead one holds back no other.

    ::

        async with Sinks() as sinks:
            sinks.add("readings-5s", Console())
            sinks.add("readings-5s", File("output.jsonl"))
            await sinks.run()

    It takes a database as ``Penstock`` does, or a log that is open already.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        log: Log | None = None,
    ) -> None:
        if sum(given is not None for given in (url, data_dir, log)) > 1:
            raise ConfigurationError("url, data_dir and log name the database in three ways: give one of them")
        overrides: Overrides = {}
        if url is not None:
            overrides["database_url"] = url
        if data_dir is not None:
            overrides["database_url"] = None
            overrides["data_dir"] = Path(data_dir).expanduser().absolute()
        self._log = log or Log(Database(Settings.from_env(**overrides)))
        self._is_ours = log is None
        self.outlets: list[Outlet] = []
        self._stopping = asyncio.Event()

    async def open(self) -> Self:
        """Open the database, if it is not."""
        if self._is_ours:
            await self._log.open()
        return self

    async def close(self) -> None:
        """Let go of it."""
        if self._is_ours:
            await self._log.close()

    def add(self, queue: str, *sinks: Sink, group: str | None = None, **pace: Any) -> Self:
        """Bring what is in a queue to each of these sinks, which read as groups of their own.

        ``group`` is the name of the group, for a single sink; else each is called as the sink is. The other options
        are those of :class:`~penstock.sinks.Pace`.
        """
        if not sinks or (group is not None and len(sinks) > 1):
            raise InvalidRequest("give a sink and perhaps its group, or several sinks without one")
        chosen = pace_of(pace)
        for sink in sinks:
            outlet = Outlet(self._log, queue, sink, group=group, pace=chosen)
            if any((other.queue, other.group) == (outlet.queue, outlet.group) for other in self.outlets):
                raise InvalidRequest(
                    f"two sinks would read {queue!r} as {outlet.group!r}, each a part of it: give one another group"
                )
            self.outlets.append(outlet)
        return self

    def follow(self, stream: Definition, **pace: Any) -> Self:
        """Bring a stream's results to the sinks that its ``.to(...)`` names."""
        if not stream.outlets:
            raise InvalidRequest("the stream names no sinks: .to('totals', Console(), File('totals.jsonl'))")
        for flow in stream.outlets:
            self.add(flow.queue, check_sink(flow.sink), **{"group": flow.group, **flow.pace, **pace})
        return self

    @property
    def log(self) -> Log:
        """The log that they read."""
        return self._log

    @property
    def counters(self) -> dict[tuple[str, str], Counters]:
        """What each has done, by queue and group."""
        return {(outlet.queue, outlet.group): outlet.counters for outlet in self.outlets}

    def stop(self) -> None:
        """Let all of them finish what they have in hand, and end."""
        self._stopping.set()

    async def run(self, idle_seconds: float | None = None) -> None:
        """Run until :meth:`stop`, or until none of them has had anything to do for so long.

        One that is set up in a wrong way ends alone, and its error is raised at the end. When cancelled, it ends as
        with :meth:`stop`.
        """
        if not self.outlets:
            raise InvalidRequest("there is nothing to run: add('queue', sink) first")
        totals = Totals(self._log.database, self.outlets)
        counting = asyncio.create_task(totals.keep_writing())
        tasks = [asyncio.create_task(self._run_one(outlet, idle_seconds)) for outlet in self.outlets]
        stopped = asyncio.create_task(self._stopping.wait())
        ended = asyncio.create_task(_all_of(tasks))
        try:
            await asyncio.wait([ended, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            await self._end(tasks)
            await ended
            counting.cancel()
            await asyncio.wait([counting])
            await totals.write()
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                raise error

    async def _run_one(self, outlet: Outlet, idle_seconds: float | None) -> None:
        try:
            await outlet.run(idle_seconds)
        except Exception as error:
            outlet.counters.error = str(error)
            _logger.error("%s: %s; this sink has ended, the others go on", outlet.group, error)
            raise

    async def _end(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for outlet in self.outlets:
            outlet.stop()
        _, late = await asyncio.wait(tasks, timeout=_STOP_SECONDS)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def check_sink(given: object) -> Sink:
    """What a stream takes for a sink, if it is one."""
    if not isinstance(given, Sink):
        raise InvalidRequest(f"a sink is an instance of penstock.sinks.Sink, not {type(given).__name__}")
    return given


async def _all_of(tasks: Sequence[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)
