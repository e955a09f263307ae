"""Endpoints: a declaration for routing, decoding, authorization and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import NoneType, UnionType
from typing import Any, TypeAlias, get_args, get_type_hints

from starlette.responses import Response

from penstock.server.auth.identity import Role
from penstock.server.http.errors import PROBLEM_JSON, ErrorFormat

#: Handles an ``ApiCall`` and returns a value to encode as JSON, a response, or None for 204. Its arguments ``query``
#: and ``body``, if it has them, are the decoded query string and body. The handler of a WebSocket gets a
#: ``WebSocketCall`` and returns None.
Handler: TypeAlias = Callable[..., Awaitable[Any]]
#: Adds a handler to a group and returns it.
_Decorator: TypeAlias = Callable[[Handler], Handler]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route and its handler.

    Attributes:
        path: The path in Starlette's syntax: ``/v1/queues/{queue}/events``. The parameter ``queue`` (or
            ``queue:path``) is checked against the queues of the caller's key.
        roles: Callers need one of these roles or ADMIN. Empty: callers need no credential.
        checks_queues: The handler checks the queues itself, with :meth:`ApiCall.require_access` or
            :meth:`ApiCall.can_see`, because they are in the body, the query string or the response. Without it, and
            without a queue in the path, the caller must not be limited to some queues.
        operation: The name in the OpenAPI document, in snake case. None: that of the handler.
        body: The type of the JSON body. None: there is none, or the handler reads it itself.
        query: The type of the query string. None: there are no parameters.
        lenient_query: Query parameters that are unknown or given twice are ignored; other endpoints refuse them.
        response: The type of the JSON response. None: no content.
        problems: Problems of this endpoint, beside those that every endpoint has.
        errors: Renders the errors of this endpoint.
        openapi: Merged into the OpenAPI operation: media types, headers, other responses.
        is_websocket: The endpoint is a WebSocket.
        has_side_effects: A GET with side effects, which its clients expect. It supports no HEAD, and cross-site
            requests are refused.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    tag: str
    roles: frozenset[Role] = frozenset()
    checks_queues: bool = False
    operation: str | None = None
    body: Any = None
    body_required: bool = True
    query: Any = None
    lenient_query: bool = False
    response: Any = None
    status: int = 200
    problems: tuple[str, ...] = ()
    errors: ErrorFormat = PROBLEM_JSON
    openapi: Mapping[str, Any] = field(default_factory=dict)
    is_websocket: bool = False
    has_side_effects: bool = False


class EndpointGroup:
    """Declares the endpoints of one tag, with a decorator per method.

    The types of a handler's arguments ``query`` and ``body`` and of its result are those of the endpoint. Keyword
    arguments are fields of :class:`Endpoint`; those of a decorator take precedence over those of the group.
    """

    def __init__(self, tag: str, **defaults: Any) -> None:
        self._tag = tag
        self._defaults = defaults
        self._endpoints: list[Endpoint] = []
        self.get = partial(self._declare, "GET")
        self.post = partial(self._declare, "POST")
        self.put = partial(self._declare, "PUT")
        self.patch = partial(self._declare, "PATCH")
        self.delete = partial(self._declare, "DELETE")

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._endpoints)

    def _declare(self, method: str, path: str, summary: str, *roles: Role, **fields: Any) -> _Decorator:
        def declare(handler: Handler) -> Handler:
            hints = get_type_hints(handler)
            types = {
                "query": hints.get("query"),
                "body": hints.get("body"),
                "response": _response_type(hints["return"]),
            }
            options = {**types, **self._defaults, **fields}
            self._endpoints.append(Endpoint(method, path, handler, summary, self._tag, frozenset(roles), **options))
            return handler

        return declare


def _response_type(returned: Any) -> Any:
    """Return the JSON type that a handler returns; None if it returns nothing or a whole response."""
    types = get_args(returned) if isinstance(returned, UnionType) else (returned,)
    documents = [each for each in types if not (isinstance(each, type) and issubclass(each, Response | NoneType))]
    return documents[0] if documents else None
