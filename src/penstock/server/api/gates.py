"""Gates over HTTP: what each lane may pass and what waits; limits that change while a query runs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from penstock.engine.gates.admin import GateBook, GateChange, GateInfo
from penstock.server.http.endpoint import Call, Endpoint, Role

_READ = frozenset({Role.READ})
_ADMIN = frozenset({Role.ADMIN})
#: Whoever may consume what a gate lets through may hold it back, as a partner asked.
_CONSUME = frozenset({Role.CONSUME})
_TAG = "Gates"


class Gates(Struct, frozen=True):
    """Gates by lane, those that hold something back first."""

    gates: list[GateInfo]


class GatesQuery(Struct, frozen=True):
    """Which gates."""

    query: str | None = None
    key: str | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


class Hold(Struct, frozen=True):
    """What is to be held back, and for how long."""

    seconds: Annotated[float, Meta(ge=0, le=366 * 86_400)]
    key: str | None = None


async def gates(call: Call) -> Gates:
    """Every gate of every lane, or some."""
    asked: GatesQuery = call.query
    book = GateBook(call.services.log.database)
    return Gates(list(await book.list(asked.query, asked.key, limit=asked.limit)))


async def change(call: Call) -> None:
    """Change limits, pause, resume or hold back."""
    asked: GateChange = call.body
    await GateBook(call.services.log.database).change(call.path["query"], asked)


async def hold(call: Call) -> None:
    """Let nothing through for a while."""
    asked: Hold = call.body
    book, query = GateBook(call.services.log.database), call.path["query"]
    call.permit_found(await book.sink(query))
    await book.change(query, GateChange(key=asked.key, hold_seconds=asked.seconds))


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/gates",
        gates,
        "Gates: what each lane may pass, and what waits",
        _TAG,
        roles=_READ,
        query=GatesQuery,
        answer=Gates,
        problems=("not-found", "invalid-name", "invalid-option"),
    ),
    Endpoint(
        "PATCH",
        "/v1/gates/{query}",
        change,
        "Change a gate's limits, pause it or resume it",
        _TAG,
        roles=_ADMIN,
        body=GateChange,
        problems=("not-found", "invalid-name", "invalid-option"),
    ),
    Endpoint(
        "POST",
        "/v1/gates/{query}/hold",
        hold,
        "Let a gate pass nothing for a while, as a partner's Retry-After asks",
        _TAG,
        roles=_CONSUME,
        asks=True,
        body=Hold,
        problems=("not-found", "invalid-name", "invalid-option"),
    ),
)
