"""A stream that can be run, and its query for code with an event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.core.errors import InvalidName, InvalidRequest
from penstock.core.names import check_name
from penstock.core.settings import Settings
from penstock.engine.run_options import RunOptions
from penstock.stream.definition import Definition

if TYPE_CHECKING:
    from penstock.engine.query import Query
    from penstock.engine.query_status import Status
    from penstock.engine.results.result_reader import QueryRows


#: PostgreSQL cuts longer names off.
_MAX_NAME_BYTES = 63
#: Options of Queen's streams. They have no effect here, since a cycle reads what has arrived.
_IGNORED_OPTIONS = ("batch_size", "max_partitions")


class Stream(Definition):
    """A pipeline that reads queues, computes and writes its results.

    ::

        from penstock import Stream, agg

        orders = (
            Stream.from_("orders")
            .window_tumbling(seconds=5)
            .aggregate({"count": agg.count(), "total": agg.sum("amount")})
            .to("orders.totals")
        )
        orders.run(query_id="orders_5s")

    While it runs, ``SELECT * FROM penstock_live.orders_5s`` shows every open window.
    """

    def start(self, query_id: str | None = None, *, settings: Settings | None = None, **options: Any) -> Query:
        """Run the stream in the background, and return the query."""
        return self._query(query_id, settings, options).start()

    def run(
        self,
        query_id: str | None = None,
        *,
        settings: Settings | None = None,
        url: str | None = None,
        **options: Any,
    ) -> Any:  # a Query or, inside an event loop, an awaitable AsyncQuery
        """Run the stream until it is stopped (Ctrl-C, SIGTERM) or, with ``available_now``, has read all events.

        Inside an event loop, await it. It then returns once the query runs::

            running = await stream.run(query_id="ota-limiter")
            ...
            await running.stop()

        ``query_id`` may be left out for a view that ``.materialize(name)`` has named.

        ``url`` is the PostgreSQL to use instead of the environment's. The URL of a server is ignored: its database is
        taken from the environment.
        """
        if url is not None and settings is None and not url.startswith(("http://", "https://")):
            settings = Settings.from_env(database_url=url)
        query = self._query(query_id, settings, options)
        if _has_loop():
            return start_async(query)
        from penstock.engine.foreground import run_until_stopped

        return run_until_stopped(query)

    def explain(self, *, settings: Settings | None = None) -> str:
        """Describe the steps, followed by Spark's plan."""
        from penstock.engine.preview import explain

        return explain(self, settings or Settings.from_env())

    def preview(self, n: int = 100, *, settings: Settings | None = None) -> list[dict[str, Any]]:
        """Return the rows that the stream computes from the newest n events of each queue.

        Nothing is committed, ``foreach`` is not called, and events that fail are left out, with a warning.
        """
        from penstock.engine.preview import preview

        return preview(self, settings or Settings.from_env(), n)

    def _query(self, query_id: str | None, settings: Settings | None, options: dict[str, Any]) -> Query:
        from penstock.engine.query import Query

        if query_id is None:
            query_id = None if self.view is None else self.view.name
        if query_id is None:
            raise InvalidRequest("name the query: .run('orders_5s'), or .materialize('order_totals') for a view")
        check_name(query_id, "query")
        if (self.windows or self.view is not None) and len(query_id.encode()) > _MAX_NAME_BYTES:
            raise InvalidName(
                f"the id of a query with windows or of a view may have up to {_MAX_NAME_BYTES} bytes, because it names "
                f"views of PostgreSQL; {query_id!r} has {len(query_id.encode())}"
            )
        for name in _IGNORED_OPTIONS:
            options.pop(name, None)
        if self.gates:
            # Events are released as soon as their gates allow.
            options.setdefault("interval_seconds", 0.0)
        return Query(self, query_id, settings or Settings.from_env(), RunOptions.from_mapping(options))


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class AsyncQuery:
    """A running query whose waiting methods are awaited."""

    def __init__(self, query: Query) -> None:
        self._query = query

    @property
    def name(self) -> str:
        """The id of the query."""
        return self._query.name

    @property
    def status(self) -> Status:
        """Counts since the start, and the current state."""
        return self._query.status

    @property
    def is_running(self) -> bool:
        """Whether the query has not ended."""
        return self._query.is_running

    async def rows(self, *, key: str | None = None, current: bool = False) -> QueryRows:
        """Return the open windows, as ``penstock_live`` has them; with ``current``, the current one of each key."""
        return await asyncio.to_thread(lambda: self._query.rows(key=key, current=current))

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the query has ended; raises the error that ended it. Returns False after a timeout."""
        return await asyncio.to_thread(self._query.wait, timeout)

    async def stop(self, *, flush: bool = False) -> None:
        """End the query after its current cycle; with ``flush``, close and emit all open windows."""
        await asyncio.to_thread(lambda: self._query.stop(flush=flush))


async def start_async(query: Query) -> AsyncQuery:
    """Start a query. Returns when it runs or stands by."""
    await asyncio.to_thread(query.start)
    return AsyncQuery(query)
