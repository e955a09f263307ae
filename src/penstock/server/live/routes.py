"""Following what happens: a query's results, and a queue's end."""

from __future__ import annotations

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response

from penstock.core.errors import NotFound
from penstock.core.names import check_key, check_text
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.http.errors import Problem
from penstock.server.http.websocket import SocketCall
from penstock.server.live.sse_ws import EventStream, Following, talk

_MOST_KEYS = 1_000


class LiveQuery(msgspec.Struct):
    """Which windows to follow, and from where."""

    #: Keys, separated by commas; all, if it is not given.
    keys: str | None = None
    #: As the header Last-Event-ID, for who cannot set headers.
    last_event_id: str | None = None


class TailQuery(msgspec.Struct):
    """Which events to follow, and from where."""

    partition: str | None = None
    key: str | None = None
    last_event_id: str | None = None


async def live(call: Call) -> Response:
    """A query's open windows, then what each cycle changes, as Server-Sent Events."""
    _check_accepted(call.request)
    return EventStream(await _follow_query(call), call.readmit)


async def live_socket(call: SocketCall) -> None:
    """The same over a WebSocket."""
    with await _follow_query(call) as subscriber:
        await talk(await call.accept(), subscriber, call.readmit)


async def tail(call: Call) -> Response:
    """What is appended to a queue, as Server-Sent Events."""
    _check_accepted(call.request)
    return EventStream(await _follow_queue(call), call.readmit)


async def tail_socket(call: SocketCall) -> None:
    """The same over a WebSocket."""
    with await _follow_queue(call) as subscriber:
        await talk(await call.accept(), subscriber, call.readmit)


async def _follow_query(call: Call | SocketCall) -> Following:
    call.services.hubs.admit()
    keys = _keys(call.query.keys)
    query = await call.services.hubs.find_query(call.path["query"])
    return call.services.hubs.following_query(query, keys, _last_id(call.request, call.query.last_event_id))


async def _follow_queue(call: Call | SocketCall) -> Following:
    call.services.hubs.admit()
    query: TailQuery = call.query
    if query.key is not None:
        check_key(query.key)
    if query.partition is not None:
        check_text(query.partition, "the partition")
    queue = await call.services.log.catalog.find(call.path["queue"])
    if queue is None:
        raise NotFound(f"there is no queue {call.path['queue']!r}")
    partition = query.partition
    if partition is None and query.key is not None and queue.epoch == 0:
        partition = queue.place(query.key)
    last_id = _last_id(call.request, query.last_event_id)
    return call.services.hubs.following_queue(queue, partition, query.key, last_id)


def _keys(given: str | None) -> frozenset[str] | None:
    if given is None:
        return None
    keys = [check_key(key) for key in given.split(",") if key]
    if not keys or len(keys) > _MOST_KEYS:
        raise Problem("invalid-request", f"keys must be 1 to {_MOST_KEYS:,} keys, separated by commas")
    return frozenset(keys)


def _last_id(request: HTTPConnection, given: str | None) -> str:
    return request.headers.get("last-event-id") or given or ""


def _check_accepted(request: HTTPConnection) -> None:
    accept = request.headers.get("accept", "*/*")
    if not any(form in accept for form in ("text/event-stream", "text/*", "*/*")):
        raise Problem("not-acceptable", "this is a stream of Server-Sent Events: accept text/event-stream")


_READ = frozenset({Role.READ})
_CONSUME = frozenset({Role.READ, Role.CONSUME})
_STREAM = {"responses": {"200": {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}}
_PROBLEMS = ("not-found", "not-acceptable", "overloaded", "stopping", "database-unavailable", "invalid-name")

ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/queries/{query}/live",
        live,
        "Follow a query's results",
        "Live",
        roles=_READ,
        query=LiveQuery,
        problems=_PROBLEMS,
        documented=_STREAM,
    ),
    Endpoint(
        "GET",
        "/v1/queries/{query}/live",
        live_socket,
        "Follow a query's results over a WebSocket",
        "Live",
        roles=_READ,
        query=LiveQuery,
        problems=_PROBLEMS,
        websocket=True,
    ),
    Endpoint(
        "GET",
        "/v1/queues/{queue}/tail",
        tail,
        "Follow a queue's end",
        "Live",
        roles=_CONSUME,
        query=TailQuery,
        problems=_PROBLEMS,
        documented=_STREAM,
    ),
    Endpoint(
        "GET",
        "/v1/queues/{queue}/tail",
        tail_socket,
        "Follow a queue's end over a WebSocket",
        "Live",
        roles=_CONSUME,
        query=TailQuery,
        problems=_PROBLEMS,
        websocket=True,
    ),
)
