"""Dispatch of WebSocket handshakes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from penstock.server.routing.dispatch import (
    check_path,
    create_authorizer,
    decode_path,
    decode_query,
    record_problem,
)
from penstock.server.routing.endpoint import Endpoint
from penstock.server.services import Services

#: The subprotocol of the server. A page cannot set headers, so it can send its key as a second subprotocol.
PROTOCOL = "penstock"
_KEY_PROTOCOL_PREFIX = "penstock.key."


@dataclass(slots=True)
class WebSocketCall:
    """A handshake, as its handler sees it. The fields are those of an :class:`ApiCall`."""

    request: WebSocket
    services: Services
    path: dict[str, str]
    reauthorize: Callable[[], Awaitable[object]] | None = None

    async def accept(self) -> WebSocket:
        """Accept the handshake. Before that, the handler can refuse it with a problem."""
        offered = self.request.scope.get("subprotocols", [])
        await self.request.accept(subprotocol=PROTOCOL if PROTOCOL in offered else None)
        return self.request


class WebSocketDispatcher:
    def __init__(self, endpoint: Endpoint, services: Services) -> None:
        self._endpoint = endpoint
        self._services = services
        self._authorizer = create_authorizer(endpoint, services)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        state = scope.setdefault("state", {})
        state["route"] = self._endpoint.path
        request_id: str = state.get("request_id", "")
        path = decode_path(socket)
        try:
            authorize = partial(self._authorizer.authorize, _with_credential(socket), path, request_id)
            await authorize()
            check_path(self._endpoint, path)
            arguments = decode_query(socket, self._endpoint)
            reauthorize = None if self._services.authenticator is None else authorize
            await self._endpoint.handler(WebSocketCall(socket, self._services, path, reauthorize), **arguments)
        except WebSocketDisconnect:
            return
        except Exception as error:
            problem = record_problem(error, state, request_id)
            await self._authorizer.audit(socket, path, problem.status, request_id)
            if socket.application_state is WebSocketState.CONNECTING:
                await socket.send_denial_response(problem.response(request_id))
            else:
                await socket.close(1011)


def _with_credential(socket: WebSocket) -> HTTPConnection:
    """Return the handshake with the key of its subprotocol as a header."""
    for offered in socket.scope.get("subprotocols", []):
        if offered.startswith(_KEY_PROTOCOL_PREFIX):
            key = offered.removeprefix(_KEY_PROTOCOL_PREFIX).encode("latin-1", "replace")
            headers = [*socket.scope["headers"], (b"authorization", b"Bearer " + key)]
            return HTTPConnection({**socket.scope, "headers": headers})
    return socket
