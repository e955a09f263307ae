"""``penstock rule``: alerts on the results of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.commands.queue import Yes
from penstock.cli.completion import queue_names
from penstock.cli.session import CommandSession, find_queue
from penstock.cli.times import format_time
from penstock.core.errors import InvalidRequest, NotFound
from penstock.core.formatting import number

if TYPE_CHECKING:
    from penstock.stream.rules import ConditionKind

app = typer.Typer(help="Rules: alerts on the results of queries.")

RuleName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the rule.")]


@command(
    app,
    "save",
    examples=[
        "penstock rule save hot --on readings-5s --value avg --above 80 --clear 75 --fire-after 2",
        "penstock rule save surge --on views-1m --value count --zscore 3 --over 20",
        "penstock rule save silent --on readings-5s --absent 30 --expect boiler",
    ],
)
async def save(
    session: CommandSession,
    name: RuleName,
    on: Annotated[str, typer.Option(metavar="QUEUE", help="The queue of results.", autocompletion=queue_names)],
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
    """Create or change a rule. `penstock rule run` evaluates it."""
    from penstock.sinks.alerts import RuleStore
    from penstock.stream import rules

    limits: dict[ConditionKind, float | None] = {
        "above": above,
        "below": below,
        "change": change,
        "zscore": zscore,
        "absent": absent,
    }
    chosen = [kind for kind, limit in limits.items() if limit is not None]
    if len(chosen) != 1:
        raise InvalidRequest("give exactly one condition: --above, --below, --change, --zscore or --absent")
    kind = chosen[0]
    limit = float(limits[kind] or 0)
    optional = {"clear": clear, "over": over}
    when = rules.make_condition(kind, limit, **{name: value for name, value in optional.items() if value is not None})
    rule = rules.rule(
        name,
        on=on,
        when=when,
        value=value,
        alerts=alerts,
        fire_after=fire_after,
        clear_after=clear_after,
        live=live,
        expect=expect or (),
    )
    async with session.log() as log:
        await find_queue(log, on)
        await RuleStore(log).save(rule)
    session.out.note(f"Saved rule {name}. `penstock rule run` evaluates it and writes alerts to the queue {alerts!r}.")


@command(app, "list", examples=["penstock rule list", "penstock rule list --json"])
async def list_(session: CommandSession) -> None:
    """List the rules and the firing alerts."""
    import msgspec

    from penstock.sinks.alerts import RuleStore

    async with session.log() as log:
        saved, firing = await RuleStore(log).all(), await RuleStore(log).firing()
    document = {
        "rules": [{**msgspec.to_builtins(entry.rule), "firing": entry.firing} for entry in saved],
        "firing": [{"rule": rule, "key": key, "since": since} for rule, key, since in firing],
    }
    rows = [
        [
            entry.rule.name,
            entry.rule.queue,
            entry.rule.value,
            f"{entry.rule.condition.kind} {entry.rule.condition.limit:g}",
            entry.rule.alerts,
            number(entry.firing),
        ]
        for entry in saved
    ]
    columns = ("rule", "on", "value", "when", "alerts", "firing")
    empty = "There are no rules yet. `penstock rule save --help` shows how to create one."
    session.out.listing(document, columns, rows, right=("firing",), empty=empty)
    for rule, key, since in firing:
        session.out.note(f"{rule}: {key} has been firing since {format_time(since)}")


@command(app, "delete", examples=["penstock rule delete hot"])
async def delete(session: CommandSession, name: RuleName, yes: Yes = False) -> None:
    """Delete a rule."""
    from penstock.sinks.alerts import RuleStore

    if not yes:
        session.out.confirm(f"Delete rule {name}?")
    async with session.log() as log:
        if not await RuleStore(log).delete(name):
            raise NotFound(f"there is no rule {name!r}: `penstock rule list` lists the rules")
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
    from penstock.sinks.alerts import Alerts, RuleStore
    from penstock.sinks.runner import Sinks

    async with session.log() as log:
        rules = [entry.rule for entry in await RuleStore(log).all() if not only or entry.rule.name in only]
        if not rules:
            raise NotFound("there is no such rule: create one with `penstock rule save`")
        runner = Sinks(log=log)
        for rule in rules:
            runner.add(rule.queue, Alerts(rule))
            session.out.hint(f"{rule.name}: {rule.queue} → {rule.alerts}")
        await runner.run(idle_seconds)
