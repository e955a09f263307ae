"""The materialized views of the database that the SELECT of a view reads."""

from __future__ import annotations

from penstock.core.errors import Conflict, InvalidRequest
from penstock.engine.query_registry import Registry
from penstock.log.log import Log
from penstock.stream.definition import Definition
from penstock.stream.views.view import OtherView, read_other_views


async def resolve_views(log: Log, registry: Registry, stream: Definition, query: str) -> Definition:
    """Return a view that reads the views of the database among its sources. A queue of the same name comes first."""
    found: dict[str, OtherView] = {}
    if stream.view is None:
        return stream
    for name in stream.view.queue_names:
        if stream.view.inputs[name].sources != (name,) or await log.catalog.find(name) is not None:
            continue
        other = await registry.source_view(name, query)
        if other is None:
            continue
        if name == query:
            raise InvalidRequest(f"the view {name!r} reads itself: name a queue or another view in FROM")
        if other.changes is None:
            raise InvalidRequest(
                f"the view {name!r} has no queue of its changes, from which other views read it: run it again, with "
                f"WITH (changes = '{name}.changes') and reset=True (--reset)"
            )
        found[name] = OtherView(tuple(other.types), other.changes)
    return read_other_views(stream, found) if found else stream


async def check_source_views(registry: Registry, stream: Definition, query: str) -> None:
    """Raise Conflict if a view does not have all changes of another one that it reads."""
    for name in stream.view.source_views if stream.view is not None else ():
        other = await registry.source_view(name, query)
        if other is None:
            continue
        if other.has_outdated_reader:
            raise Conflict(
                f"the view {name!r} was started over, and {query!r} has rows of its earlier run: start {query!r} over, "
                "too, with reset=True (--reset)"
            )
        if other.is_truncated:
            raise Conflict(
                f"the retention of the queue {other.changes!r} has dropped changes of the view {name!r} that "
                f"{query!r} needs: run {name!r} again with reset=True (--reset), and set no retention for that queue"
            )
