"""``Sinks``: runs several sinks in one process, and writes their counters to the database."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.core.errors import ConfigurationError, InvalidRequest
from penstock.core.option_checks import check_option_names
from penstock.core.settings import Overrides, Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.sinks.base import Sink
from penstock.sinks.delivery.sink_stats import SinkStatsWriter
from penstock.sinks.delivery.sink_worker import SinkWorker, check_sink
from penstock.sinks.delivery.stop_timeouts import STOP_SECONDS
from penstock.sinks.sink_options import Counters, SinkOptions
from penstock.stream.definition import Definition

_logger = logging.getLogger("penstock.sinks")


def read_sink_options(given: Mapping[str, Any]) -> SinkOptions:
    """Return the options of a sink by name, or raise InvalidOption for an unknown one."""
    check_option_names(given, SinkOptions.__dataclass_fields__, "sink")
    return SinkOptions(**given)


def check_sinks(stream: Definition) -> None:
    """Raise InvalidRequest if a sink of a stream is none, or needs fields that the results do not have."""
    for binding in stream.sink_bindings:
        sink = check_sink(binding.sink)
        # The fields of other results than aggregates depend on the events.
        if stream.aggregates and binding.queue == stream.sink:
            names = stream.outputs or ("key", "window_start", "window_end", *stream.aggregates)
            sink.check_fields({*names, "revision", "replaced_by"})


class Sinks:
    """Runs sinks on queues. A sink that is slow or fails does not delay the others.

    ::

        async with Sinks() as sinks:
            sinks.add("readings-5s", Console())
            sinks.add("readings-5s", File("output.jsonl"))
            await sinks.run()

    Args:
        url: The PostgreSQL database, as for ``Penstock``.
        data_dir: The data directory of a PostgreSQL that Penstock starts.
        log: An open log, instead of ``url`` or ``data_dir``.
        stop_seconds: How long sinks may take to stop before they are cancelled.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        log: Log | None = None,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        if sum(given is not None for given in (url, data_dir, log)) > 1:
            raise ConfigurationError("url, data_dir and log each name the database: give only one of them")
        overrides: Overrides = {}
        if url is not None:
            overrides["database_url"] = url
        if data_dir is not None:
            overrides["database_url"] = None
            overrides["data_dir"] = Path(data_dir).expanduser().absolute()
        self._log = log or Log(Database(Settings.from_env(**overrides)))
        self._owns_log = log is None
        self._stop_seconds = stop_seconds
        self.workers: list[SinkWorker] = []
        self._stopping = asyncio.Event()

    async def open(self) -> Self:
        """Connect to the database. ``async with`` calls this."""
        if self._owns_log:
            await self._log.open()
        return self

    async def close(self) -> None:
        """Disconnect. ``async with`` calls this."""
        if self._owns_log:
            await self._log.close()

    def add(self, queue: str, *sinks: Sink, group: str | None = None, **options: Any) -> Self:
        """Deliver the events of a queue to sinks. Each sink reads as a consumer group of its own.

        Args:
            queue: The queue.
            sinks: The sinks.
            group: The name of the group, for a single sink. By default it is the name of the sink.
            options: The fields of :class:`~penstock.sinks.SinkOptions`.
        """
        if not sinks or (group is not None and len(sinks) > 1):
            raise InvalidRequest("give one sink with or without a group, or several sinks without a group")
        checked = read_sink_options(options)
        for sink in sinks:
            worker = SinkWorker(self._log, queue, sink, group=group, options=checked)
            if any((other.queue, other.group) == (worker.queue, worker.group) for other in self.workers):
                raise InvalidRequest(
                    f"two sinks would share the group {worker.group!r} on queue {queue!r}, so that each would get a "
                    "part of the events: give one of them another group"
                )
            self.workers.append(worker)
        return self

    def follow(self, stream: Definition, **options: Any) -> Self:
        """Deliver a stream's results to the sinks in its ``.to(...)``."""
        if not stream.sink_bindings:
            raise InvalidRequest(
                "the stream has no sinks: add them with .to('totals', Console(), File('totals.jsonl'))"
            )
        check_sinks(stream)
        for binding in stream.sink_bindings:
            self.add(binding.queue, check_sink(binding.sink), **{"group": binding.group, **binding.options, **options})
        return self

    @property
    def log(self) -> Log:
        """The log that the sinks read."""
        return self._log

    @property
    def counters(self) -> dict[tuple[str, str], Counters]:
        """The counters of each sink, by queue and group."""
        return {(worker.queue, worker.group): worker.counters for worker in self.workers}

    def stop(self) -> None:
        """Let all sinks finish their writes, and end."""
        self._stopping.set()

    async def run(self, idle_seconds: float | None = None) -> None:
        """Run until :meth:`stop`, or until no sink had events for ``idle_seconds``.

        A sink that is configured wrongly ends alone, and its error is raised when all sinks have ended. A cancelled
        run ends like after :meth:`stop`.
        """
        if not self.workers:
            raise InvalidRequest("there are no sinks to run: call add('queue', sink) first")
        stats = SinkStatsWriter(self._log.database, self.workers)
        writing_stats = asyncio.create_task(stats.run())
        tasks = [asyncio.create_task(self._run_worker(worker, idle_seconds)) for worker in self.workers]
        stopped = asyncio.create_task(self._stopping.wait())
        ended: asyncio.Future[Any] = asyncio.gather(*tasks, return_exceptions=True)
        try:
            await asyncio.wait([ended, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            await self._stop_workers(tasks)
            await ended
            writing_stats.cancel()
            await asyncio.wait([writing_stats])
            await stats.write()
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                raise error

    async def _run_worker(self, worker: SinkWorker, idle_seconds: float | None) -> None:
        try:
            await worker.run(idle_seconds)
        except Exception as error:
            worker.counters.error = str(error)
            if len(self.workers) > 1:  # the error of a single sink is raised at once
                _logger.error("%s: %s; this sink has ended, the others go on", worker.group, error)
            raise

    async def _stop_workers(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for worker in self.workers:
            worker.stop()
        _, late = await asyncio.wait(tasks, timeout=self._stop_seconds)
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
