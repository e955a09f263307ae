"""What a route is: declared once, for routing, reading, checking who may call it, and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.log.read.pop import FIRST_BYTES
from penstock.server.http.errors import Problem

if TYPE_CHECKING:
    from penstock.server.auth.identity import Identity
    from penstock.server.http.request import Incoming
    from penstock.server.ingest.memory_budget import Hold
    from penstock.server.services import Services

#: The largest body that is read into memory whole; what may be larger is streamed by its handler.
MAX_BODY_BYTES = 32 << 20
_PIECE = 256 << 10


class Role(Enum):
    """What a caller may do. ``ADMIN`` may do all; the others are for what they say."""

    PRODUCE = "produce"
    CONSUME = "consume"
    READ = "read"
    ADMIN = "admin"


class Nothing(msgspec.Struct):
    """A body or a query without anything in it."""


@dataclass(slots=True)
class Call:
    """A request that is being answered, as its handler sees it."""

    request: Incoming
    services: Services
    #: The parts of the path that vary, decoded.
    path: Mapping[str, str]
    #: The query string, as the endpoint's ``query`` type.
    query: Any
    #: The body, as the endpoint's ``body`` type; None where the handler reads it itself.
    body: Any
    #: Who asks: the id of an API key or the subject of a token; "" where access is off.
    caller: str
    request_id: str
    #: What the caller may do; None is as if access were off.
    identity: Identity | None = None
    #: Whether the handler has asked about the queues that it works on.
    asked: bool = False
    #: Raises a problem if the caller may no longer do this, for answers that last long; None where access is off.
    readmit: Callable[[], Awaitable[object]] | None = None
    #: What is held until the answer is sent.
    until_sent: ExitStack = field(default_factory=ExitStack)
    #: Its share of what all answers may hold together, once it asked for one.
    share: Hold | None = None

    def hold(self) -> Hold:
        """The share of an answer that may be large: what was held for it, and then what it has, until it is sent."""
        if self.share is None:
            self.share = self.until_sent.enter_context(self.services.given_out.hold())
        return self.share

    async def room(self, most: int) -> int:
        """How many bytes an answer may have: a chunk's, once there is room for that, and what more there is at once."""
        hold = self.hold()
        await hold.reach(FIRST_BYTES)
        return hold.stretch(most)

    def permit(self, queues: str | Iterable[str], *roles: Role) -> None:
        """Refuse the call unless the caller may do this with these queues.

        Called by every handler whose queues are not a part of the path, before it does anything to them. Without
        ``roles``, those of the endpoint are enough.
        """
        self.asked = True
        if self.identity is None:
            return
        if roles and not self.identity.has(frozenset(roles)):
            needed = " or ".join(sorted(role.value for role in roles))
            raise Problem("forbidden", f"Insufficient permissions: this needs the role {needed}")
        for queue in (queues,) if isinstance(queues, str) else queues:
            if not self.identity.reaches(queue):
                detail = f"Insufficient permissions: the key is not for the queue {queue!r}"
                raise Problem("forbidden", detail, {"queue": queue})

    def permit_found(self, queues: str | Iterable[str], *roles: Role) -> None:
        """The same for queues that the caller has not named: of others' it is not told even what they are called."""
        try:
            self.permit(queues, *roles)
        except Problem as problem:
            if "queue" in problem.facts:
                detail = "Insufficient permissions: this belongs to a queue that the key is not for"
                raise Problem(problem.kind, detail) from None
            raise

    def sees(self, queue: str) -> bool:
        """Whether a queue may appear in the answer: what lists queues leaves the others out."""
        self.asked = True
        return self.identity is None or self.identity.reaches(queue)

    def sees_all(self) -> bool:
        """Whether the caller is limited to no queues, so that nothing need be left out."""
        self.asked = True
        return self.identity is None or not self.identity.is_limited


#: Answers a call with a value that is encoded as JSON, with a whole response, or with None for "no content". Where the
#: endpoint is a WebSocket it is given a :class:`~penstock.server.http.websocket.SocketCall`, and answers nothing.
Handler: TypeAlias = Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route.

    Attributes:
        path: As Starlette writes it: ``/v1/queues/{queue}/events``. A part called ``queue`` (or ``queue:path``) is
            the queue that a key's pattern is held against.
        roles: Any of these may call it (and ADMIN always); empty: everybody, without a key.
        asks: The handler itself asks about queues, by :meth:`Call.permit` or :meth:`Call.sees`: they are in the body,
            the query string or the answer. Where neither the path names a queue nor this is said, the endpoint is
            for callers who are limited to no queues.
        body: The type of the JSON body. None: there is none, or the handler reads it itself.
        query: The type of the query string; unknown parameters are refused.
        answer: The type of the JSON answer. None: no content.
        problems: The kinds of problem that it can have, beside those that every route can.
        plane: A route of the message plane: errors as ``{"error": ...}``, unknown parameters ignored.
        documented: More for the OpenAPI operation, merged into it: media types, headers, other answers.
        websocket: The handler is given a WebSocket and not a request.
        changes: It is a GET that changes something, because its clients call it so: no HEAD goes with it, and no page
            of another site can have a browser call it.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    tag: str
    roles: frozenset[Role] = frozenset()
    asks: bool = False
    body: Any = None
    body_required: bool = True
    query: Any = Nothing
    answer: Any = None
    status: int = 200
    problems: tuple[str, ...] = ()
    plane: bool = False
    documented: Mapping[str, Any] = field(default_factory=dict)
    websocket: bool = False
    changes: bool = False


class _Pieces(Response):
    """A large answer, sent as fast as the caller reads: whoever does so slowly is not taken for one who does not."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        left = memoryview(self.body)
        while len(left) > _PIECE:
            await send({"type": "http.response.body", "body": left[:_PIECE], "more_body": True})
            left = left[_PIECE:]
        await send({"type": "http.response.body", "body": left})


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as a JSON answer."""
    body = msgspec.json.encode(value)
    kind = Response if len(body) <= _PIECE else _Pieces
    return kind(body, status_code=status, headers=dict(headers or {}), media_type="application/json")
