"""Queries over HTTP: which there are, how far each is, what its cycles did; pausing, stopping and forgetting it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from penstock.core.errors import Conflict, NotFound
from penstock.engine import commands
from penstock.engine.ledger import Activity, Cycle, activity_of, cycles_of
from penstock.engine.registry import QueryInfo, Registry
from penstock.log.log import GroupInfo
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.queen.client_queries import SharedQuery, delete_shared, find_shared, open_rows, shared_queries

_READ = frozenset({Role.READ})
_ADMIN = frozenset({Role.ADMIN})
_TAG = "Queries"

_LATELY = timedelta(minutes=5)


class QueryListing(Struct, frozen=True, kw_only=True):
    """A query in a list of them."""

    name: str
    #: spark, or clients: those of the message plane, which compute it for themselves.
    computed_by: str
    #: running, paused or stopped
    state: str
    #: Who drives it on Spark.
    driver: str | None
    queues: list[str]
    sink: str | None
    #: How many events it has yet to read.
    lag: int
    #: Its last cycle; 0 for those of clients, which are not numbered.
    cycle: int
    committed_at: datetime | None
    created_at: datetime


class Queries(Struct, frozen=True):
    """All queries, by name."""

    queries: list[QueryListing]


class Lately(Struct, frozen=True):
    """What a query did in the last five minutes."""

    seconds: float
    cycles: int
    failed: int
    events: int
    windows: int
    late: int
    dead: int


class QueryDetails(QueryListing, frozen=True, kw_only=True):
    """A query, and how it is doing."""

    #: Its steps in words.
    description: list[str]
    #: None, if it has no windows or does not know their columns yet.
    open_windows: int | None
    #: Up to where event time has come; None, if no window is closed by it.
    watermark: datetime | None
    lease_until: datetime | None
    history_seconds: float
    #: None for those of clients, which keep no ledger here.
    lately: Lately | None
    groups: list[GroupInfo]


class CycleDetails(Struct, frozen=True):
    """A cycle; what it came to is null unless it was committed."""

    cycle: int
    #: planned, committed or failed
    state: str
    planned: int
    planned_at: datetime
    committed_at: datetime | None
    #: From its plan to its commit, without waiting for the commit of the one before it; and from the append of its
    #: oldest event to its commit.
    seconds: float | None
    freshness_seconds: float | None
    events: int | None
    outputs: int | None
    windows: int | None
    late: int | None
    dead: int | None
    watermark: datetime | None
    #: Milliseconds of each part.
    took: dict[str, float] | None
    error: str | None


class Cycles(Struct, frozen=True):
    """Cycles of a query, the newest first."""

    cycles: list[CycleDetails]


class CyclesQuery(Struct, frozen=True):
    """Which cycles."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 20
    failed: bool = False
    before: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


async def queries(call: Call) -> Queries:
    """Every query."""
    log = call.services.log
    groups = await log.groups()
    found = [_listing(each, groups) for each in await Registry(log).list()]
    found += [_shared_listing(each) for each in await shared_queries(log, groups=groups)]
    return Queries(sorted(found, key=lambda each: each.name))


async def query(call: Call) -> QueryDetails:
    """One query."""
    log = call.services.log
    if (shared := await find_shared(log, call.path["query"])) is not None:
        return _shared_details(shared, await open_rows(log, shared.name))
    info = await _find(call)
    activity = await activity_of(call.services.log.database, info.id, _LATELY)
    if activity is None:
        raise _missing(info.name)
    return _details(info, await call.services.log.groups(), activity)


async def cycles(call: Call) -> Cycles:
    """What its cycles did."""
    info = await _find(call)
    asked: CyclesQuery = call.query
    found = await cycles_of(
        call.services.log.database, info.id, limit=asked.limit, failed=asked.failed, before=asked.before
    )
    return Cycles([_cycle(each) for each in found])


async def pause(call: Call) -> None:
    """Let it begin no more cycles."""
    await _refuse_shared(call)
    await commands.pause(call.services.log.database, call.path["query"])


async def resume(call: Call) -> None:
    """Let it go on."""
    await _refuse_shared(call)
    await commands.resume(call.services.log.database, call.path["query"])


async def stop(call: Call) -> None:
    """Let its drivers end."""
    await _refuse_shared(call)
    await commands.stop(call.services.log.database, call.path["query"])


async def delete(call: Call) -> None:
    """Forget it."""
    name, log = call.path["query"], call.services.log
    if not await Registry(log).delete(name) and not await delete_shared(log, name):
        raise _missing(name)


async def _find(call: Call) -> QueryInfo:
    for each in await Registry(call.services.log).list():
        if each.name == call.path["query"]:
            return each
    # Of another kind, or none at all, which it says itself.
    shared = await call.services.hubs.find_query(call.path["query"])
    raise NotFound(
        f"clients of the message plane compute the query {shared.name!r}, so nothing is known here of its cycles: "
        f"GET /v1/queries/{shared.name}/live follows its state, which is in the view penstock.state too"
    )


async def _refuse_shared(call: Call) -> None:
    """What clients compute is theirs to stop."""
    if (shared := await find_shared(call.services.log, call.path["query"])) is not None:
        raise Conflict(
            f"clients of the message plane compute the query {shared.name!r}, and nobody here can tell them to stop: "
            "stop them where they run"
        )


def _missing(name: str) -> NotFound:
    return NotFound(f"there is no query {name!r}: GET /v1/queries lists those there are")


def _of(info: QueryInfo, groups: Sequence[GroupInfo]) -> list[GroupInfo]:
    return [group for group in groups if group.query_id == info.name]


def _listing(info: QueryInfo, groups: Sequence[GroupInfo]) -> QueryListing:
    own = _of(info, groups)
    return QueryListing(
        name=info.name,
        computed_by="spark",
        state=info.state,
        driver=info.driver if info.is_running else None,
        queues=[group.queue for group in own],
        sink=info.sink,
        lag=sum(group.lag for group in own),
        cycle=info.cycle,
        committed_at=info.committed_at,
        created_at=info.created_at,
    )


def _details(info: QueryInfo, groups: Sequence[GroupInfo], activity: Activity) -> QueryDetails:
    listing = _listing(info, groups)
    return QueryDetails(
        **{name: getattr(listing, name) for name in QueryListing.__struct_fields__},
        description=info.description,
        open_windows=activity.open_windows if activity.has_result else None,
        watermark=activity.watermark,
        lease_until=activity.lease_until if info.is_running else None,
        history_seconds=activity.history_seconds,
        lately=Lately(
            _LATELY.total_seconds(),
            activity.cycles,
            activity.failed,
            activity.events_in,
            activity.windows,
            activity.late,
            activity.dead,
        ),
        groups=_of(info, groups),
    )


def _shared_listing(query: SharedQuery) -> QueryListing:
    return QueryListing(
        name=query.name,
        computed_by="clients",
        state=query.state,
        driver=None,
        queues=[query.queue],
        sink=query.sink,
        lag=query.lag,
        cycle=0,
        committed_at=query.committed_at,
        created_at=query.created_at,
    )


def _shared_details(query: SharedQuery, rows: int) -> QueryDetails:
    listing = _shared_listing(query)
    return QueryDetails(
        **{name: getattr(listing, name) for name in QueryListing.__struct_fields__},
        description=query.description,
        open_windows=rows,
        watermark=None,
        lease_until=None,
        history_seconds=0.0,
        lately=None,
        groups=query.groups,
    )


def _cycle(cycle: Cycle) -> CycleDetails:
    fresh = None
    if cycle.committed_at is not None and cycle.oldest_at is not None:
        fresh = (cycle.committed_at - cycle.oldest_at).total_seconds()
    return CycleDetails(
        cycle.cycle,
        cycle.state,
        cycle.planned,
        cycle.planned_at,
        cycle.committed_at,
        cycle.seconds,
        fresh,
        cycle.events_in,
        cycle.events_out,
        cycle.windows,
        cycle.late,
        cycle.dead,
        cycle.watermark,
        cycle.took,
        cycle.error,
    )


_QUERY = "/v1/queries/{query}"
_CONTROL = ("not-found", "conflict")

ENDPOINTS = (
    Endpoint("GET", "/v1/queries", queries, "List queries", _TAG, _READ, answer=Queries),
    Endpoint("GET", _QUERY, query, "Show a query", _TAG, _READ, answer=QueryDetails, problems=("not-found",)),
    Endpoint(
        "GET",
        f"{_QUERY}/cycles",
        cycles,
        "The newest cycles of a query",
        _TAG,
        _READ,
        query=CyclesQuery,
        answer=Cycles,
        problems=("not-found",),
    ),
    Endpoint("POST", f"{_QUERY}/pause", pause, "Pause a query", _TAG, _ADMIN, problems=_CONTROL),
    Endpoint("POST", f"{_QUERY}/resume", resume, "Let a paused query go on", _TAG, _ADMIN, problems=_CONTROL),
    Endpoint("POST", f"{_QUERY}/stop", stop, "Stop whoever drives a query", _TAG, _ADMIN, problems=_CONTROL),
    Endpoint(
        "DELETE",
        _QUERY,
        delete,
        "Forget a query that does not run, with its state, its history and its place",
        _TAG,
        _ADMIN,
        problems=("not-found", "group-busy"),
    ),
)
