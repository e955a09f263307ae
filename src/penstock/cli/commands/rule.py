"""``penstock rule``: alerts on the results of queries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import command
from penstock.cli.command_session import CommandSession, find_queue
from penstock.cli.commands.queue import Yes
from penstock.cli.completion import queue_names
from penstock.cli.times import format_time
from penstock.core.errors import InvalidRequest, NotFound
from penstock.core.formatting import counted, duration, full_number, number

if TYPE_CHECKING:
    from penstock.engine.alerts.rule_store import RuleStore
    from penstock.log.log import Log
    from penstock.stream.rules import ConditionKind, Rule

app = typer.Typer(help="Rules: alerts on the results of queries.")

RuleName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the rule.")]
ResultQueue = Annotated[
    str, typer.Option("--on", metavar="QUEUE", help="The queue of results.", autocompletion=queue_names)
]


def rule_options(
    value: Annotated[str, typer.Option(metavar="FIELD", help="The field to compare.")] = "value",
    above: Annotated[float | None, typer.Option(metavar="LIMIT", help="Fire when the value is above.")] = None,
    below: Annotated[float | None, typer.Option(metavar="LIMIT", help="Fire when the value is below.")] = None,
    change: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Fire when the value differs by this share from the previous windows."),
    ] = None,
    zscore: Annotated[
        float | None, typer.Option(metavar="N", help="Fire when the value is this many standard deviations off.")
    ] = None,
    absent: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Fire when a key has no window for this long.")
    ] = None,
    clear: Annotated[
        float | None, typer.Option(metavar="LIMIT", help="Resolve at this limit.", show_default="the limit")
    ] = None,
    over: Annotated[
        int | None,
        typer.Option(metavar="N", help="The number of windows to compare with.", show_default="3; 20 for --zscore"),
    ] = None,
    fire_after: Annotated[int, typer.Option(metavar="N", help="Consecutive windows needed to fire.")] = 1,
    clear_after: Annotated[int, typer.Option(metavar="N", help="Consecutive windows needed to resolve.")] = 1,
    live: Annotated[
        str | None, typer.Option(metavar="QUERY", help="Evaluate the open windows of this query too (--above).")
    ] = None,
    expect: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="A key that is expected (--absent); may be repeated.")
    ] = None,
    alerts: Annotated[str, typer.Option(metavar="QUEUE", help="The queue for alerts.")] = "alerts",
) -> None:
    """The definition of a rule."""


def _make_rule(name: str, on: str, options: dict[str, Any]) -> Rule:
    from penstock.stream import rules

    kinds: tuple[ConditionKind, ...] = ("above", "below", "change", "zscore", "absent")
    limits = {kind: options.pop(kind) for kind in kinds}
    chosen = [kind for kind, limit in limits.items() if limit is not None]
    if len(chosen) != 1:
        raise InvalidRequest("give exactly one condition: --above, --below, --change, --zscore or --absent")
    kind = chosen[0]
    optional = {"clear": options.pop("clear"), "over": options.pop("over")}
    given = {name: value for name, value in optional.items() if value is not None}
    options["expect"] = options["expect"] or ()
    return rules.rule(name, on=on, when=rules.make_condition(kind, float(limits[kind]), **given), **options)


@command(
    app,
    "save",
    options=rule_options,
    examples=[
        "penstock rule save hot --on readings-5s --value avg --above 80 --clear 75 --fire-after 2",
        "penstock rule save surge --on views-1m --value count --zscore 3 --over 20",
        "penstock rule save silent --on readings-5s --absent 30 --expect boiler",
    ],
)
async def save(
    session: CommandSession,
    name: RuleName,
    on: ResultQueue,
    strict: Annotated[
        bool, typer.Option("--strict/--no-strict", help="Refuse a field that no recent result has.")
    ] = True,
    **options: Any,
) -> None:
    """Create or change a rule."""
    rule = _make_rule(name, on, options)
    async with _open_store(session) as (log, store):
        await find_queue(log, on)
        await store.save(rule, strict=strict)
        query = await store.find_query(rule)
    if query is None:
        evaluated = "`penstock rule run` evaluates it"
    elif rule.live is not None:
        evaluated = f"Query {query!r} evaluates it when it closes windows, and `penstock rule run` on open windows"
    else:
        evaluated = f"Query {query!r} evaluates it when it closes windows"
    session.out.note(f"Saved rule {name}. {evaluated}. Alerts go to the queue {rule.alerts!r}.")


@command(
    app,
    "try",
    options=rule_options,
    examples=[
        "penstock rule try hot --on readings-5s --value avg --above 80",
        "penstock rule try surge --on views-1m --value count --zscore 3 --results 10000",
    ],
)
async def try_(
    session: CommandSession,
    name: RuleName,
    on: ResultQueue,
    results: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="How many of the newest results to read.")
    ] = 2_000,
    **options: Any,
) -> None:
    """Show which alerts a rule would have raised on past results. Nothing is stored."""
    from penstock.engine.alerts.trial import try_rule

    rule = _make_rule(name, on, options)
    async with session.log() as log:
        await find_queue(log, on)
        trial = await try_rule(log, rule, limit=results)
    fired = [each for each in trial.alerts if each.state == "firing"]
    document = {"results": len(trial.points), "alerts": trial.alerts}
    rows = [[format_time(each.window_start or each.at), each.state, each.message] for each in trial.alerts]
    session.out.listing(document, ("when", "state", "message"), rows, empty="The rule would have raised no alert.")
    session.out.note(f"{counted(len(trial.points), 'result')}, {counted(len(fired), 'alert')}.")


@command(
    app,
    "silence",
    examples=["penstock rule silence hot --for 3600", "penstock rule silence hot --key boiler --for 600"],
)
async def silence(
    session: CommandSession,
    name: RuleName,
    seconds: Annotated[
        float, typer.Option("--for", min=0, metavar="SECONDS", help="For how long; 0 ends the silence.")
    ],
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only this key.", show_default="all keys")] = None,
) -> None:
    """Let a rule raise no new alerts for a time. Alerts that fire already still resolve."""
    async with _open_store(session) as (_, store):
        if not await store.silence(name, seconds, key=key):
            raise _not_found(name)
    scope = "" if key is None else f" for {key}"
    session.out.note(
        f"Rule {name} is silent{scope} for {duration(seconds)}." if seconds else f"Rule {name} is not silent{scope}."
    )


@command(app, "list", examples=["penstock rule list", "penstock rule list --json"])
async def list_(session: CommandSession) -> None:
    """List the rules and the firing alerts."""
    import msgspec

    async with _open_store(session) as (_, store):
        saved, firing = await store.all(), await store.firing()
    document = {
        "rules": [
            {
                **msgspec.to_builtins(entry.rule),
                "firing": entry.firing,
                "silenced_until": entry.silenced_until,
                "silenced_keys": dict(entry.silenced_keys),
            }
            for entry in saved
        ],
        "firing": [alert._asdict() for alert in firing],
    }
    rows = [
        [
            entry.rule.name,
            entry.rule.queue,
            entry.rule.value,
            f"{entry.rule.condition.kind} {full_number(entry.rule.condition.limit)}",
            entry.rule.alerts,
            number(entry.firing),
            format_time(entry.silenced_until) if entry.silenced_until else ", ".join(entry.silenced_keys),
        ]
        for entry in saved
    ]
    columns = ("rule", "on", "value", "when", "alerts", "firing", "silent until")
    empty = "There are no rules yet. `penstock rule save --help` shows how to create one."
    session.out.listing(document, columns, rows, right=("firing",), empty=empty)
    for rule, key, since in firing:
        session.out.note(f"{rule}: {key} has been firing since {format_time(since)}")


@command(app, "delete", examples=["penstock rule delete hot"])
async def delete(session: CommandSession, name: RuleName, yes: Yes = False) -> None:
    """Delete a rule."""
    async with _open_store(session) as (_, store):
        if await store.find(name) is None:
            raise _not_found(name)
        if not yes:
            session.out.confirm(f"Delete rule {name}?")
        await store.delete(name)
    session.out.note(f"Deleted rule {name}.")


@command(app, "run", examples=["penstock rule run", "penstock rule run --only hot --only surge"])
async def run(
    session: CommandSession,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A rule to evaluate; may be repeated.", show_default="all")
    ] = None,
    idle_seconds: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Exit after this long without a new event."),
    ] = None,
) -> None:
    """Evaluate the rules and write alerts until Ctrl-C."""
    from penstock.sinks.alerts import Alerts
    from penstock.sinks.delivery.sinks import Sinks

    async with _open_store(session) as (log, store):
        rules = [entry.rule for entry in await store.all() if not only or entry.rule.name in only]
        if not rules:
            raise NotFound("there is no such rule: create one with `penstock rule save`")
        runner = Sinks(log=log)
        for rule in rules:
            runner.add(rule.queue, Alerts(rule))
            session.out.hint(f"{rule.name}: {rule.queue} → {rule.alerts}")
        await runner.run(idle_seconds)


@asynccontextmanager
async def _open_store(session: CommandSession) -> AsyncIterator[tuple[Log, RuleStore]]:
    from penstock.engine.alerts.rule_store import RuleStore

    async with session.log() as log:
        yield log, RuleStore(log)


def _not_found(name: str) -> NotFound:
    return NotFound(f"there is no rule {name!r}: `penstock rule list` lists the rules")
