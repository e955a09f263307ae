"""``/v1/gates``: inspect the gates of queries, and change their limits while the queries run."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from penstock.engine.gates.gate_admin import GateAdmin, GateChange, GateInfo
from penstock.server.auth.identity import Role
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup

routes = EndpointGroup("Gates", problems=("not-found", "invalid-name", "invalid-option"))


class GateList(Struct, frozen=True):
    """Gates by key partition, those that hold events back first."""

    gates: list[GateInfo]


class ListGatesQuery(Struct, frozen=True):
    query: str | None = None
    key: str | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


class HoldGateRequest(Struct, frozen=True):
    """How long to hold a gate, and for which key; all keys by default."""

    seconds: Annotated[float, Meta(ge=0, le=366 * 86_400)]
    key: str | None = None


@routes.get("/v1/gates", "List gates", Role.READ)
async def list_gates(call: ApiCall, query: ListGatesQuery) -> GateList:
    """Return the gates of all queries and key partitions, or some of them."""
    gates = await GateAdmin(call.log.database).list(query.query, query.key, limit=query.limit)
    return GateList(list(gates))


@routes.patch("/v1/gates/{query}", "Change, pause or resume a gate", Role.ADMIN)
async def update_gate(call: ApiCall, body: GateChange) -> None:
    """Change the limits of a gate, pause it, resume it or hold it."""
    await GateAdmin(call.log.database).change(call.path["query"], body)


# A consumer of the released events may hold the gate, for example after a Retry-After of its destination.
@routes.post("/v1/gates/{query}/hold", "Hold a gate for some time", Role.CONSUME, checks_queues=True)
async def hold_gate(call: ApiCall, body: HoldGateRequest) -> None:
    admin, query = GateAdmin(call.log.database), call.path["query"]
    call.require_access_silently(await admin.sink(query))
    await admin.change(query, GateChange(key=body.key, hold_seconds=body.seconds))
