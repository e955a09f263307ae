"""A WebSocket from its handshake to its handler."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from penstock.server.auth.authorize import Gate
from penstock.server.http.endpoint import Endpoint
from penstock.server.http.middleware import SLASH
from penstock.server.http.routing import check_path, noted, read_query
from penstock.server.services import Services

logger = logging.getLogger("penstock.server")

#: What the server speaks. A page cannot set headers, so it names its key as a second protocol, which begins so.
PROTOCOL = "penstock"
_KEY_PROTOCOL = "penstock.key."


@dataclass(slots=True)
class SocketCall:
    """A handshake that is being answered, as its handler sees it."""

    request: WebSocket
    services: Services
    path: dict[str, str]
    query: Any
    #: As that of a :class:`~penstock.server.http.endpoint.Call`.
    readmit: Callable[[], Awaitable[object]] | None = None

    async def accept(self) -> WebSocket:
        """Begin the conversation; until then the handler can refuse it with a problem."""
        offered = self.request.scope.get("subprotocols", [])
        await self.request.accept(subprotocol=PROTOCOL if PROTOCOL in offered else None)
        return self.request


class SocketDispatch:
    """The ASGI application of one endpoint that is a WebSocket."""

    def __init__(self, endpoint: Endpoint, services: Services) -> None:
        self._endpoint = endpoint
        self._services = services
        self._gate = Gate(endpoint, services)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a handshake, and talk."""
        socket = WebSocket(scope, receive, send)
        state = scope.setdefault("state", {})
        state["route"] = self._endpoint.path
        request_id: str = state.get("request_id", "")
        path = {name: value.replace(SLASH, "/") for name, value in socket.path_params.items()}
        try:
            admit = partial(self._gate.admit, _with_key(socket), path, request_id)
            await admit()
            check_path(self._endpoint, path)
            query = read_query(socket, self._endpoint)
            readmit = None if self._services.guard is None else admit
            await self._endpoint.handler(SocketCall(socket, self._services, path, query, readmit))
        except WebSocketDisconnect:
            return
        except Exception as error:
            problem = noted(error, state, request_id)
            await self._gate.note(socket, path, problem.status, request_id)
            if socket.application_state is WebSocketState.CONNECTING:
                await socket.send_denial_response(problem.response(request_id))
            else:
                await socket.close(1011)


def _with_key(socket: WebSocket) -> HTTPConnection:
    """The handshake with the key that it names as a protocol where others have a header."""
    for offered in socket.scope.get("subprotocols", []):
        if offered.startswith(_KEY_PROTOCOL):
            header = (b"authorization", b"Bearer " + offered.removeprefix(_KEY_PROTOCOL).encode("latin-1", "replace"))
            return HTTPConnection({**socket.scope, "headers": [*socket.scope["headers"], header]})
    return socket
