"""A stream that can be run: the builder with a beginning and an end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.core.errors import InvalidName
from penstock.core.names import check_name
from penstock.core.settings import Settings
from penstock.engine.options import RunOptions
from penstock.stream.definition import Definition

if TYPE_CHECKING:
    from penstock.engine.query import Query

_LONGEST_NAME = 63
#: Options that streams need elsewhere, where a cycle is a pop: a cycle here takes what there is.
_OF_OTHERS = ("batch_size", "max_partitions")


class Stream(Definition):
    """A pipeline over queues: say where it reads, what it does and where it writes, then run it.

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

    def start(self, query_id: str, *, settings: Settings | None = None, **options: Any) -> Query:
        """Run the stream in the background; returns the query, to wait for or to stop."""
        return self._query(query_id, settings, options).start()

    def run(
        self, query_id: str, *, settings: Settings | None = None, url: str | None = None, **options: Any
    ) -> Any:  # a Query or, to be awaited, a QueryAside: where it is called says which
        """Run the stream until it is stopped (Ctrl-C, SIGTERM) or, with ``available_now``, has read what is there.

        Inside an event loop it is awaited, does not wait for the end and gives something to stop it by::

            running = await stream.run(query_id="ota-limiter")
            ...
            await running.stop()

        ``url`` names the PostgreSQL, if it is not the environment's; that of a server is taken to stand on that one.
        """
        if url is not None and settings is None and not url.startswith(("http://", "https://")):
            settings = Settings.from_env(database_url=url)
        query = self._query(query_id, settings, options)
        if _has_loop():
            from penstock.engine.async_query import start_aside

            return start_aside(query)
        from penstock.engine.foreground import run_until_stopped

        return run_until_stopped(query)

    def explain(self, *, settings: Settings | None = None) -> str:
        """The steps in words, and the plan that Spark makes of them."""
        from penstock.engine.preview import explain

        return explain(self, settings or Settings.from_env())

    def preview(self, n: int = 100, *, settings: Settings | None = None) -> list[dict[str, Any]]:
        """What the stream makes of the newest n events of each queue, as rows.

        Nothing is committed, ``foreach`` is not called, and events that fail are left out, with a warning.
        """
        from penstock.engine.preview import preview

        return preview(self, settings or Settings.from_env(), n)

    def _query(self, query_id: str, settings: Settings | None, options: dict[str, Any]) -> Query:
        from penstock.engine.query import Query

        check_name(query_id, "query")
        if self.windows and len(query_id.encode()) > _LONGEST_NAME:
            raise InvalidName(
                f"the id of a query names its views, and PostgreSQL cuts names off at {_LONGEST_NAME} bytes: "
                f"{query_id!r} is too long"
            )
        for name in _OF_OTHERS:
            options.pop(name, None)
        if self.gates:
            # What a gate may let through it lets through at once.
            options.setdefault("interval_seconds", 0.0)
        return Query(self, query_id, settings or Settings.from_env(), RunOptions.from_mapping(options))


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
