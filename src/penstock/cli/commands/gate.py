"""``penstock gate``: state of rate-limit gates, and changes of their limits while the query runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import command
from penstock.cli.command_session import CommandSession
from penstock.cli.commands.query import QueryName
from penstock.cli.completion import query_names
from penstock.cli.times import format_time
from penstock.core.errors import NotFound
from penstock.core.formatting import full_number, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.gates.gate_admin import GateInfo

app = typer.Typer(help="Gates: show and change the rate limits of a query's keys.")

OptionalQuery = Annotated[
    str | None,
    typer.Argument(metavar="QUERY", help="This query only.", autocompletion=query_names, show_default=False),
]
Key = Annotated[str | None, typer.Argument(metavar="KEY", help="The key; without it: all keys.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, metavar="N", help="The maximum number.")]


@command(app, "list", examples=["penstock gate list", "penstock gate list ota-limiter -n 100 --json"])
async def list_gates(session: CommandSession, query: OptionalQuery = None, limit: Limit = 50) -> None:
    """List gates by key, those with waiting events first."""
    _print_gates(session, await _read_gates(session, query, None, limit))


@command(app, "show", examples=["penstock gate show ota-limiter tenant-7", "penstock gate show ota-limiter --json"])
async def show(session: CommandSession, query: QueryName, key: Key = None) -> None:
    """Show the gates of a key, or of all keys of a query."""
    gates = await _read_gates(session, query, key, 100_000)
    if key is not None and not gates:
        raise NotFound(f"no gate of query {query!r} has seen an event of the key {key!r} yet")
    _print_gates(session, gates)


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
    session: CommandSession,
    query: QueryName,
    key: Key = None,
    rate: Annotated[float | None, typer.Option(help="The rate of a token bucket, in tokens per second.")] = None,
    capacity: Annotated[float | None, typer.Option(help="The capacity of a token bucket.")] = None,
    limit: Annotated[
        float | None, typer.Option(help="The cost that a window admits, or that may be in flight.")
    ] = None,
    window: Annotated[float | None, typer.Option(metavar="SECONDS", help="The length of a window.")] = None,
    weight: Annotated[int | None, typer.Option(min=1, help="The weight of the key in a limit that keys share.")] = None,
    gate: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The number of the gate, if the query has several.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove earlier changes.")] = False,
) -> None:
    """Change limits while the query runs. Limits of a key take precedence; limits that are not given stay."""
    limits = {"rate": rate, "capacity": capacity, "limit": limit, "window_seconds": window, "weight": weight}
    await _change(session, query, key, "changed", gate=gate, clear=clear, **limits)


@command(app, "pause", examples=["penstock gate pause ota-limiter tenant-7", "penstock gate pause ota-limiter"])
async def pause(session: CommandSession, query: QueryName, key: Key = None) -> None:
    """Close the gates until they are resumed. Events wait in their queue."""
    await _change(session, query, key, "paused", paused=True)


@command(app, "resume", examples=["penstock gate resume ota-limiter tenant-7"])
async def resume(session: CommandSession, query: QueryName, key: Key = None) -> None:
    """Resume paused or held gates."""
    await _change(session, query, key, "resumed", paused=False, hold_seconds=0)


@command(app, "hold", examples=["penstock gate hold ota-limiter tenant-7 --seconds 30"])
async def hold(
    session: CommandSession,
    query: QueryName,
    key: Key = None,
    seconds: Annotated[
        float, typer.Option(min=0, metavar="N", help="The duration, such as the Retry-After of a partner.")
    ] = 60.0,
) -> None:
    """Close the gates for a time and restart with empty buckets, for example after a partner's Retry-After."""
    await _change(session, query, key, "held", hold_seconds=seconds)


async def _read_gates(session: CommandSession, query: str | None, key: str | None, limit: int) -> Sequence[GateInfo]:
    from penstock.engine.gates.gate_admin import GateAdmin

    async with session.log() as log:
        return await GateAdmin(log.database).list(query, key, limit=limit)


async def _change(session: CommandSession, query: str, key: str | None, state: str, **change: Any) -> None:
    from penstock.engine.gates.gate_admin import GateAdmin, GateChange

    async with session.log() as log:
        await GateAdmin(log.database).change(query, GateChange(key=key, **change))
    scope = "all keys" if key is None else f"key {key}"
    session.out.result({"query": query, "key": key, "state": state}, f"Query {query}, {scope}: {state}.")


def _print_gates(session: CommandSession, gates: Sequence[GateInfo]) -> None:
    import msgspec

    listing = msgspec.to_builtins(list(gates), builtin_types=(type(None),))
    numbers = ("left", "limit", "allowed", "cost", "backlog")
    columns = ("query", "key", "gate", *numbers, "next")
    rows = [_row(info) for info in gates]
    session.out.listing(listing, columns, rows, right=numbers, empty="No gate has seen an event yet.")


def _row(info: GateInfo) -> tuple[Any, ...]:
    left = info.tokens if info.tokens is not None else info.limit - (info.used or 0)
    limit = full_number(info.limit)
    if info.rate is not None:
        limit += f", {full_number(info.rate)}/s"
    elif info.window_seconds is not None:
        limit += f" in {info.window_seconds:g} s"
    state = "paused" if info.paused else "" if info.next_at is None else format_time(info.next_at)
    if info.hold_until is not None:
        state = f"held until {format_time(info.hold_until)}"
    name = f"{info.gate} {info.kind.replace('_', ' ')}"
    key = "(all)" if info.key is None else info.key
    cost = f"{info.cost_total:g}"
    return (info.query, key, name, f"{left:g}", limit, number(info.allowed_total), cost, number(info.backlog), state)
