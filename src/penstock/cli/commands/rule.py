"""``penstock rule``: alerts on the results of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.commands.queue import Yes
from penstock.cli.completion import queue_names
from penstock.cli.session import Session, find_queue
from penstock.cli.times import show_time
from penstock.core.errors import InvalidRequest, NotFound
from penstock.core.formatting import number

if TYPE_CHECKING:
    from penstock.stream.rules import Kind

app = typer.Typer(help="Rules: alerts on the results of queries.")

RuleName = Annotated[str, typer.Argument(metavar="NAME", help="The rule.")]


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
    session: Session,
    name: RuleName,
    on: Annotated[str, typer.Option(metavar="QUEUE", help="The queue of results.", autocompletion=queue_names)],
    value: Annotated[str, typer.Option(metavar="FIELD", help="The field to look at.")] = "value",
    above: Annotated[float | None, typer.Option(metavar="LIMIT", help="Fire when it is above.")] = None,
    below: Annotated[float | None, typer.Option(metavar="LIMIT", help="Fire when it is below.")] = None,
    change: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Fire when it differs so much from the windows before.")
    ] = None,
    zscore: Annotated[
        float | None, typer.Option(metavar="N", help="Fire when it is so many standard deviations off.")
    ] = None,
    absent: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Fire when a key has no window so long.")
    ] = None,
    clear: Annotated[float | None, typer.Option(metavar="LIMIT", help="Clear here.", show_default="the limit")] = None,
    over: Annotated[
        int | None, typer.Option(metavar="N", help="Windows to compare with.", show_default="3; 20 for --zscore")
    ] = None,
    fire_after: Annotated[int, typer.Option(metavar="N", help="Windows in a row that it takes to fire.")] = 1,
    clear_after: Annotated[int, typer.Option(metavar="N", help="Windows in a row that it takes to clear.")] = 1,
    live: Annotated[
        str | None, typer.Option(metavar="QUERY", help="Look at the open windows of this query too (--above).")
    ] = None,
    expect: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="A key that should be there (--absent); may be repeated.")
    ] = None,
    alerts: Annotated[str, typer.Option(metavar="QUEUE", help="The queue for alerts.")] = "alerts",
) -> None:
    """Store a rule, or change it; `penstock rule run` watches."""
    from penstock.sinks.alerts import RuleStore
    from penstock.stream import rules

    given: dict[Kind, float | None] = {
        "above": above,
        "below": below,
        "change": change,
        "zscore": zscore,
        "absent": absent,
    }
    chosen = [kind for kind, limit in given.items() if limit is not None]
    if len(chosen) != 1:
        raise InvalidRequest("say when it fires, in one way: --above, --below, --change, --zscore or --absent")
    (kind,), limit = chosen, float(given[chosen[0]] or 0)
    more = {"clear": clear, "over": over}
    when = rules.condition(kind, limit, **{name: each for name, each in more.items() if each is not None})
    made = rules.rule(
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
        await RuleStore(log).save(made)
    session.out.note(f"Saved: {name}. `penstock rule run` watches it; alerts go to the queue {alerts!r}.")


@command(app, "list", examples=["penstock rule list", "penstock rule list --json"])
async def list_(session: Session) -> None:
    """List the rules, and what fires."""
    from penstock.sinks.alerts import RuleStore

    async with session.log() as log:
        found, firing = await RuleStore(log).all(), await RuleStore(log).firing()
    if session.out.json:
        import msgspec

        session.out.document(
            {
                "rules": [{**msgspec.to_builtins(each.rule), "firing": each.firing} for each in found],
                "firing": [{"rule": rule, "key": key, "since": since} for rule, key, since in firing],
            }
        )
        return
    if not found:
        session.out.note("There are no rules yet: `penstock rule save --help` shows how to make one.")
        return
    rows = [
        [
            each.rule.name,
            each.rule.queue,
            each.rule.value,
            f"{each.rule.condition.kind} {each.rule.condition.limit:g}",
            each.rule.alerts,
            number(each.firing),
        ]
        for each in found
    ]
    session.out.table(["rule", "on", "value", "when", "alerts", "firing"], rows, right=["firing"])
    for rule, key, since in firing:
        session.out.note(f"{rule}: {key} fires since {show_time(since)}")


@command(app, "delete", examples=["penstock rule delete hot"])
async def delete(session: Session, name: RuleName, yes: Yes = False) -> None:
    """Forget a rule."""
    from penstock.sinks.alerts import RuleStore

    if not yes:
        session.out.confirm(f"Delete the rule {name!r}?")
    async with session.log() as log:
        if not await RuleStore(log).delete(name):
            raise NotFound(f"there is no rule {name!r}: `penstock rule list` shows them")
    session.out.note(f"Deleted: {name}")


@command(app, "run", examples=["penstock rule run", "penstock rule run --only hot --only surge"])
async def run(
    session: Session,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="The rules to watch; may be repeated.", show_default="all")
    ] = None,
    idle_seconds: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="End when there has been nothing new for so long."),
    ] = None,
) -> None:
    """Watch the rules, each at its own pace, until Ctrl-C."""
    from penstock.sinks.alerts import Alerts, RuleStore
    from penstock.sinks.runner import Sinks

    async with session.log() as log:
        found = [each.rule for each in await RuleStore(log).all() if not only or each.rule.name in only]
        if not found:
            raise NotFound("there is no such rule to watch: `penstock rule save` makes one")
        runner = Sinks(log=log)
        for rule in found:
            runner.add(rule.queue, Alerts(rule))
            session.out.hint(f"{rule.name}: {rule.queue} → {rule.alerts}")
        await runner.run(idle_seconds)
