"""Live streams of query results and of queues, over Server-Sent Events and WebSockets."""

from __future__ import annotations

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response

from penstock.core.names import check_key
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.live.sse_ws import EventStream, Subscription, stream_over_websocket
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup
from penstock.server.routing.websocket import WebSocketCall

routes = EndpointGroup(
    "Live", problems=("not-found", "not-acceptable", "overloaded", "stopping", "database-unavailable", "invalid-name")
)
_STREAM = {"responses": {"200": {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}}
_MAX_KEYS = 1_000


class LiveResultsQuery(msgspec.Struct):
    #: Keys, separated by commas; all if not given.
    keys: str | None = None
    #: Only the current window of each key, instead of all open windows.
    current: bool = False
    #: The header Last-Event-ID for clients that cannot set headers.
    last_event_id: str | None = None


class TailQuery(msgspec.Struct):
    partition: str | None = None
    key: str | None = None
    last_event_id: str | None = None


@routes.get("/v1/queries/{query}/live", "Follow the results of a query", Role.READ, openapi=_STREAM)
async def stream_query_results(call: ApiCall, query: LiveResultsQuery) -> Response:
    """Send the open windows of a query, then the changes of each cycle, as Server-Sent Events.

    With `current=true`, send only the current window of each key, as in the view `penstock_live.<query>_current`.
    """
    _check_accept_header(call.request)
    return EventStream(await _subscribe_to_query(call, query), call.reauthorize)


@routes.get("/v1/queries/{query}/live", "Follow the results of a query over a WebSocket", Role.READ, is_websocket=True)
async def stream_query_results_over_websocket(call: WebSocketCall, query: LiveResultsQuery) -> None:
    with await _subscribe_to_query(call, query) as subscriber:
        await stream_over_websocket(await call.accept(), subscriber, call.reauthorize)


@routes.get(
    "/v1/queues/{queue}/tail", "Follow the events appended to a queue", Role.READ, Role.CONSUME, openapi=_STREAM
)
async def stream_queue_tail(call: ApiCall, query: TailQuery) -> Response:
    """Send the events that are appended to a queue, as Server-Sent Events."""
    _check_accept_header(call.request)
    return EventStream(await _subscribe_to_queue(call, query), call.reauthorize)


@routes.get(
    "/v1/queues/{queue}/tail",
    "Follow the events appended to a queue over a WebSocket",
    Role.READ,
    Role.CONSUME,
    is_websocket=True,
)
async def stream_queue_tail_over_websocket(call: WebSocketCall, query: TailQuery) -> None:
    with await _subscribe_to_queue(call, query) as subscriber:
        await stream_over_websocket(await call.accept(), subscriber, call.reauthorize)


async def _subscribe_to_query(call: ApiCall | WebSocketCall, query: LiveResultsQuery) -> Subscription:
    broadcasters = call.services.broadcasters
    broadcasters.check_capacity()
    keys = _parse_keys(query.keys)
    live_query = await broadcasters.find_query(call.path["query"])
    last_id = _last_id(call.request, query.last_event_id)
    return broadcasters.subscribe_to_query(live_query, keys, last_id, current=query.current)


async def _subscribe_to_queue(call: ApiCall | WebSocketCall, query: TailQuery) -> Subscription:
    broadcasters = call.services.broadcasters
    broadcasters.check_capacity()
    if query.key is not None:
        check_key(query.key)
    queue = await call.services.log.queue(call.path["queue"])
    partition = query.partition
    if partition is None and query.key is not None and queue.epoch == 0:
        partition = queue.partition_for_key(query.key)
    last_id = _last_id(call.request, query.last_event_id)
    return broadcasters.subscribe_to_queue(queue, partition, query.key, last_id)


def _parse_keys(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    keys = [check_key(key) for key in text.split(",") if key]
    if not keys or len(keys) > _MAX_KEYS:
        raise Problem("invalid-request", f"keys must be 1 to {_MAX_KEYS:,} keys, separated by commas")
    return frozenset(keys)


def _last_id(request: HTTPConnection, parameter: str | None) -> str:
    return request.headers.get("last-event-id") or parameter or ""


def _check_accept_header(request: HTTPConnection) -> None:
    accept = request.headers.get("accept", "*/*")
    if not any(media_type in accept for media_type in ("text/event-stream", "text/*", "*/*")):
        raise Problem("not-acceptable", "this is a stream of Server-Sent Events: accept text/event-stream")
