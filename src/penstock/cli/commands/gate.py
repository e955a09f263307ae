"""``penstock gate``: how much each lane may pass, what waits, and limits that change while a query runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import command
from penstock.cli.commands.query import QueryName
from penstock.cli.completion import query_names
from penstock.cli.session import Session
from penstock.cli.times import show_time
from penstock.core.formatting import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.gates.admin import GateChange, GateInfo

app = typer.Typer(help="Gates: how much each lane of a query may pass, what waits, and changing that.")

OptionalQuery = Annotated[
    str | None,
    typer.Argument(metavar="QUERY", help="This query only.", autocompletion=query_names, show_default=False),
]
Key = Annotated[str | None, typer.Argument(metavar="KEY", help="The lane's key; none: all lanes.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, metavar="N", help="How many at the most.")]


@command(app, "list", examples=["penstock gate list", "penstock gate list ota-limiter -n 100 --json"])
async def list_gates(session: Session, query: OptionalQuery = None, limit: Limit = 50) -> None:
    """List gates by lane, those that hold something back first."""
    _show(session, await _gates(session, query, None, limit))


@command(app, "show", examples=["penstock gate show ota-limiter tenant-7", "penstock gate show ota-limiter --json"])
async def show(session: Session, query: QueryName, key: Key = None) -> None:
    """Show the gates of a query's lane, or of all its lanes."""
    from penstock.core.errors import NotFound

    found = await _gates(session, query, key, 100_000)
    if key is not None and not found:
        raise NotFound(f"query {query!r} has let nothing of lane {key!r} through yet, nor held it back")
    _show(session, found)


@command(
    app,
    "set",
    examples=[
        "penstock gate set ota-limiter tenant-7 --rate 250",
        "penstock gate set ota-limiter --rate 50 --capacity 100",
        "penstock gate set mails tenant-7 --limit 1000 --window 86400",
        "penstock gate set ota-limiter tenant-7 --clear",
    ],
)
async def set_limits(
    session: Session,
    query: QueryName,
    key: Key = None,
    rate: Annotated[float | None, typer.Option(help="Tokens a second, of a token bucket.")] = None,
    capacity: Annotated[float | None, typer.Option(help="How many tokens a bucket holds.")] = None,
    limit: Annotated[float | None, typer.Option(help="How much a window lets through, or may be in flight.")] = None,
    window: Annotated[float | None, typer.Option(metavar="SECONDS", help="How long a window is.")] = None,
    weight: Annotated[
        int | None, typer.Option(min=1, help="How much of a shared limit the lane gets beside the others.")
    ] = None,
    gate: Annotated[int | None, typer.Option(min=1, metavar="N", help="Which gate, where there are several.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Forget what was changed before.")] = False,
) -> None:
    """Change limits while the query runs. A key's own count before those of all; what is not named stays."""
    from penstock.engine.gates.admin import GateChange

    change = GateChange(
        key=key, gate=gate, rate=rate, capacity=capacity, limit=limit, window_seconds=window, weight=weight, clear=clear
    )
    await _change(session, query, change, "changed")


@command(app, "pause", examples=["penstock gate pause ota-limiter tenant-7", "penstock gate pause ota-limiter"])
async def pause(session: Session, query: QueryName, key: Key = None) -> None:
    """Let nothing through until it is resumed; what comes waits in its queue."""
    from penstock.engine.gates.admin import GateChange

    await _change(session, query, GateChange(key=key, paused=True), "paused")


@command(app, "resume", examples=["penstock gate resume ota-limiter tenant-7"])
async def resume(session: Session, query: QueryName, key: Key = None) -> None:
    """Let through again what the limits allow."""
    from penstock.engine.gates.admin import GateChange

    await _change(session, query, GateChange(key=key, paused=False, hold_seconds=0), "resumed")


@command(app, "hold", examples=["penstock gate hold ota-limiter tenant-7 --seconds 30"])
async def hold(
    session: Session,
    query: QueryName,
    key: Key = None,
    seconds: Annotated[
        float, typer.Option(min=0, metavar="N", help="For how long, such as a partner's Retry-After.")
    ] = 60.0,
) -> None:
    """Let nothing through for a while, and begin with an empty bucket then: the partner has said so."""
    from penstock.engine.gates.admin import GateChange

    await _change(session, query, GateChange(key=key, hold_seconds=seconds), "held")


async def _gates(session: Session, query: str | None, key: str | None, limit: int) -> Sequence[GateInfo]:
    from penstock.engine.gates.admin import GateAdmin

    async with session.log() as log:
        return await GateAdmin(log.database).list(query, key, limit=limit)


async def _change(session: Session, query: str, change: GateChange, state: str) -> None:
    from penstock.engine.gates.admin import GateAdmin

    async with session.log() as log:
        await GateAdmin(log.database).change(query, change)
    if session.out.json:
        session.out.document({"query": query, "key": change.key, "state": state})
    else:
        lane = "all lanes" if change.key is None else f"lane {change.key}"
        session.out.note(f"Query {query}, {lane}: {state}.")


def _show(session: Session, found: Sequence[GateInfo]) -> None:
    import msgspec

    if session.out.json:
        session.out.document(msgspec.to_builtins(list(found), builtin_types=(type(None),)))
        return
    if not found:
        session.out.hint("No gate has let anything through yet, or held it back.")
        return
    numbers = ("left", "limit", "allowed", "cost", "backlog")
    columns = ("query", "key", "gate", *numbers, "next")
    session.out.table(columns, [_row(each) for each in found], right=numbers)


def _row(each: GateInfo) -> tuple[Any, ...]:
    left = each.tokens if each.tokens is not None else each.limit - (each.used or 0)
    limit = f"{each.limit:g}"
    if each.rate is not None:
        limit += f", {each.rate:g}/s"
    elif each.window_seconds is not None:
        limit += f" in {each.window_seconds:g} s"
    state = "paused" if each.paused else "" if each.next_at is None else show_time(each.next_at)
    if each.hold_until is not None:
        state = f"held until {show_time(each.hold_until)}"
    name = f"{each.gate} {each.kind.replace('_', ' ')}"
    key = "(all)" if each.key is None else each.key
    cost = f"{each.cost_total:g}"
    return (each.query, key, name, f"{left:g}", limit, number(each.allowed_total), cost, number(each.backlog), state)
