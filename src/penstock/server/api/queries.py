"""``/v1/queries``: inspect, pause, resume, stop and delete queries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct, convert, structs

from penstock.core.errors import Conflict, NotFound
from penstock.engine import query_commands
from penstock.engine.client_queries import (
    ClientQuery,
    count_open_rows,
    delete_client_query,
    find_client_query,
    list_client_queries,
)
from penstock.engine.cycle_ledger import Activity, read_activity, read_cycles
from penstock.engine.query_registry import QueryInfo, Registry
from penstock.engine.results.result_reader import PAGE_ROWS, ResultView, RowPage, RowRequest, read_page
from penstock.log.queue_info import GroupInfo
from penstock.protocol.queries import QueryListing, list_query
from penstock.server.auth.identity import Role
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup

routes = EndpointGroup("Queries", problems=("not-found",))
_QUERY = "/v1/queries/{query}"
_CONTROL_PROBLEMS = ("not-found", "conflict")

_RECENT = timedelta(minutes=5)


class QueryList(Struct, frozen=True):
    """All queries, by name."""

    queries: list[QueryListing]


class RecentActivity(Struct, frozen=True):
    """Totals of a query for the last five minutes."""

    seconds: float
    cycles: int
    failed: int
    events: int
    windows: int
    late: int
    dead: int


class QueryDetails(QueryListing, frozen=True, kw_only=True):
    #: Its steps as text.
    description: list[str]
    #: None if it has no windows, or none yet.
    open_windows: int | None
    #: None if no watermark closes its windows.
    watermark: datetime | None
    lease_until: datetime | None
    history_seconds: float
    #: None if clients compute it: there is no ledger of their cycles.
    lately: RecentActivity | None
    groups: list[GroupInfo]


class CycleDetails(Struct, frozen=True, rename={"events_in": "events", "events_out": "outputs"}):
    """A cycle. Its results are null unless it was committed."""

    cycle: int
    #: planned, committed or failed
    state: str
    planned: int
    planned_at: datetime
    committed_at: datetime | None
    #: Time from its plan to its commit, without the wait for the previous cycle.
    seconds: float | None
    #: Time from the append of its oldest event to its commit.
    freshness_seconds: float | None
    events_in: int | None
    events_out: int | None
    windows: int | None
    late: int | None
    dead: int | None
    watermark: datetime | None
    #: Milliseconds by phase.
    took: dict[str, float] | None
    error: str | None


class CycleList(Struct, frozen=True):
    """Cycles of a query, the newest first."""

    cycles: list[CycleDetails]


class ListCyclesQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 20
    failed: bool = False
    before: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


@routes.get("/v1/queries", "List queries", Role.READ, problems=())
async def list_queries(call: ApiCall) -> QueryList:
    """Return all queries, those that clients compute too."""
    groups = await call.log.groups()
    listings = [list_query(info, _groups_of(info, groups)) for info in await Registry(call.log).list()]
    listings += [list_query(query, query.groups) for query in await list_client_queries(call.log, groups=groups)]
    return QueryList(sorted(listings, key=lambda listing: listing.name))


@routes.get(_QUERY, "Get a query", Role.READ)
async def get_query(call: ApiCall) -> QueryDetails:
    log = call.log
    if (client_query := await find_client_query(log, call.path["query"])) is not None:
        rows = await count_open_rows(log, client_query.name)
        return _to_details(client_query, client_query.groups, rows, None)
    info = await _find_query(call)
    activity = await read_activity(log.database, info.id, _RECENT)
    if activity is None:
        raise _not_found(info.name)
    windows = activity.open_windows if activity.has_result else None
    return _to_details(info, _groups_of(info, await log.groups()), windows, activity)


@routes.get(f"{_QUERY}/cycles", "List the cycles of a query", Role.READ)
async def list_cycles(call: ApiCall, query: ListCyclesQuery) -> CycleList:
    info = await _find_query(call)
    cycles = await read_cycles(call.log.database, info.id, limit=query.limit, failed=query.failed, before=query.before)
    return CycleList(convert(cycles, list[CycleDetails], from_attributes=True))


class ListRowsQuery(Struct, frozen=True):
    #: live: the open windows; current: the current window of each key; history: the closed windows.
    view: ResultView = "live"
    key: str | None = None
    #: Only windows that end after this time.
    since: datetime | None = None
    #: Only windows that end at this time or before.
    until: datetime | None = None
    #: With view=history, also the open windows.
    include_open: bool = False
    limit: Annotated[int, Meta(ge=1, le=PAGE_ROWS)] = 1000


@routes.get(f"{_QUERY}/rows", "Get the result of a query", Role.READ)
async def list_rows(call: ApiCall, query: ListRowsQuery) -> RowPage:
    """Return windows of a query, by their end, and the types of their columns.

    `more` is true if there are others than the first `limit`. For the next page, leave out the rows with the last
    `window_end`, and give the one before it as `since`.
    """
    request = RowRequest(
        call.path["query"], query.view, query.key, query.since, query.until, include_open=query.include_open
    )
    return await read_page(call.log.database, request, query.limit)


@routes.post(f"{_QUERY}/pause", "Pause a query", Role.ADMIN, problems=_CONTROL_PROBLEMS)
async def pause_query(call: ApiCall) -> None:
    """Pause a query: it starts no more cycles."""
    await _refuse_client_query(call)
    await query_commands.pause(call.log.database, call.path["query"])


@routes.post(f"{_QUERY}/resume", "Resume a query", Role.ADMIN, problems=_CONTROL_PROBLEMS)
async def resume_query(call: ApiCall) -> None:
    await _refuse_client_query(call)
    await query_commands.resume(call.log.database, call.path["query"])


@routes.post(f"{_QUERY}/stop", "Stop a query", Role.ADMIN, problems=_CONTROL_PROBLEMS)
async def stop_query(call: ApiCall) -> None:
    """Stop the drivers of a query."""
    await _refuse_client_query(call)
    await query_commands.stop(call.log.database, call.path["query"])


@routes.delete(_QUERY, "Delete a stopped query", Role.ADMIN, problems=("not-found", "group-busy", "conflict"))
async def delete_query(call: ApiCall) -> None:
    """Delete a stopped query with its state, its history and its positions.

    A view that other views read is not deleted.
    """
    name, log = call.path["query"], call.log
    if not await Registry(log).delete(name) and not await delete_client_query(log, name):
        raise _not_found(name)


async def _find_query(call: ApiCall) -> QueryInfo:
    name = call.path["query"]
    for info in await Registry(call.log).list():
        if info.name == name:
            return info
    if await find_client_query(call.log, name) is None:
        raise _not_found(name)
    raise NotFound(
        f"clients compute the query {name!r}, so the server has no record of its cycles: "
        f"GET /v1/queries/{name}/live follows its state, and the view penstock.state shows it"
    )


async def _refuse_client_query(call: ApiCall) -> None:
    if (query := await find_client_query(call.log, call.path["query"])) is not None:
        raise Conflict(
            f"clients compute the query {query.name!r}, and the server cannot stop them: stop them where they run"
        )


def _not_found(name: str) -> NotFound:
    return NotFound(f"there is no query {name!r}: GET /v1/queries lists all queries")


def _groups_of(info: QueryInfo, groups: Sequence[GroupInfo]) -> list[GroupInfo]:
    return [group for group in groups if group.query_id == info.name]


def _to_details(
    query: QueryInfo | ClientQuery, groups: list[GroupInfo], open_windows: int | None, activity: Activity | None
) -> QueryDetails:
    lately = None
    if activity is not None:
        counts = (activity.cycles, activity.failed, activity.events_in, activity.windows, activity.late, activity.dead)
        lately = RecentActivity(_RECENT.total_seconds(), *counts)
    return QueryDetails(
        **structs.asdict(list_query(query, groups)),
        description=query.description,
        open_windows=open_windows,
        watermark=None if activity is None else activity.watermark,
        lease_until=activity.lease_until if activity is not None and query.is_running else None,
        history_seconds=0.0 if activity is None else activity.history_seconds,
        lately=lately,
        groups=groups,
    )
