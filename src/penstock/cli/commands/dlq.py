"""``penstock dlq``: events that could not be processed, why, and the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import FAILED, command
from penstock.cli.commands.group import OptionalQueue
from penstock.cli.commands.queue import Yes
from penstock.cli.session import Session, find_queue
from penstock.cli.times import parse_time, show_time
from penstock.core.formatting import number

if TYPE_CHECKING:
    from penstock.cli.output import Output
    from penstock.client.transport import Transport
    from penstock.log.dead_letters.models import DeadLetter, DeadLetterFilter

app = typer.Typer(help="Dead letters: events that could not be processed, why, and the way back.")

_FILTERS = "Which dead letters"
_LONGEST_ERROR = 60

Ids = Annotated[
    list[int] | None,
    typer.Option("--id", metavar="ID", help="This one; may be given again.", show_default=False),
]


def filters(
    group: Annotated[str | None, typer.Option(metavar="GROUP", help="Of this group.", rich_help_panel=_FILTERS)] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Of this key.", rich_help_panel=_FILTERS)] = None,
    error: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With this in the error.", rich_help_panel=_FILTERS)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Failed at that time or later; 2h: two hours ago.", rich_help_panel=_FILTERS),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Failed before that time.", rich_help_panel=_FILTERS)
    ] = None,
) -> dict[str, Any]:
    """The conditions that were given, as the log takes them."""
    given = {
        "group": group,
        "key": key,
        "error": error,
        "since": None if since is None else parse_time(since),
        "until": None if until is None else parse_time(until),
    }
    return {name: value for name, value in given.items() if value is not None}


@command(
    app,
    "list",
    examples=[
        "penstock dlq list",
        "penstock dlq list orders --group billing --error timeout --since 1d",
        "penstock dlq list orders --json | jq .error",
    ],
    options=filters,
)
async def list_dead_letters(
    session: Session,
    queue: OptionalQueue = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="How many at the most.")] = 100,
    offset: Annotated[int, typer.Option(min=0, metavar="N", help="How many to pass over.")] = 0,
    **conditions: Any,
) -> None:
    """List dead letters, the newest failure first."""
    from penstock.cli import json_output

    async with session.transport() as transport:
        which = await _filter(transport, queue, None, filters(**conditions))
        found = await transport.dead_letters(which, limit=limit, offset=offset)
        total = await transport.count_dead_letters(which)
    if session.out.json:
        for letter in found:
            session.out.line(json_output.dead_letter(letter))
        return
    if not found:
        session.out.hint("There are no dead letters." if not total else f"There are only {number(total)}.")
        return
    rows = [
        (
            str(letter.id),
            letter.queue,
            letter.group,
            letter.key or "–",
            number(letter.attempts),
            number(letter.redrives),
            show_time(letter.failed_at),
            _shortened(letter.error),
        )
        for letter in found
    ]
    numbers = ("id", "attempts", "redriven")
    session.out.table(("id", "queue", "group", "key", *numbers[1:], "failed", "error"), rows, right=numbers)
    if offset + len(found) < total:
        session.out.hint(f"{number(len(found))} of {number(total)}; --offset {offset + len(found)} shows the next.")


@command(app, "show", examples=["penstock dlq show 17", "penstock dlq show 17 --json | jq .data"])
async def show(
    session: Session, id: Annotated[int, typer.Argument(metavar="ID", help="The dead letter's id.")]
) -> None:
    """Show everything about a dead letter: the event, the error, the traceback and what was tried before."""
    from penstock.cli import json_output

    async with session.transport() as transport:
        letter = await _find_letter(transport, id)
    if session.out.json:
        session.out.document(json_output.dead_letter(letter))
    else:
        _show(session.out, letter)


def _show(out: Output, letter: DeadLetter) -> None:
    import msgspec

    out.facts(
        f"Dead letter {letter.id}",
        [
            ("queue", letter.queue),
            ("group", letter.group),
            ("key", letter.key or "–"),
            ("partition", f"{letter.partition or letter.partition_id}, offset {letter.offset}"),
            ("event id", letter.event_id or "–"),
            ("event time", show_time(letter.event_time)),
            ("appended", show_time(letter.appended_at)),
            ("stage", letter.stage),
            ("attempts", number(letter.attempts)),
            ("failed", show_time(letter.failed_at)),
            ("failed first", show_time(letter.first_failed_at)),
            ("redriven", f"{number(letter.redrives)} times"),
            *(("header", f"{name}: {value}") for name, value in letter.headers.items()),
        ],
    )
    out.section("Error", letter.error)
    if letter.traceback:
        out.section("Traceback", letter.traceback)
    for before in letter.history:
        when = f"Before, {before.get('failed_at')}, after {before.get('attempts')} attempts ({before.get('stage')})"
        out.section(when, str(before.get("error")))
    out.section("Data", msgspec.json.format(letter.raw, indent=2).decode())


@command(
    app,
    "redrive",
    examples=[
        "penstock dlq redrive --id 17 --id 18",
        "penstock dlq redrive orders --group billing --error timeout",
        "penstock dlq redrive orders --all",
    ],
    options=filters,
)
async def redrive(
    session: Session,
    queue: OptionalQueue = None,
    id: Ids = None,
    all: Annotated[bool, typer.Option("--all", help="All that match, however many.")] = False,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="How many at the most, the oldest first.")] = 100,
    **conditions: Any,
) -> None:
    """Send dead letters back to the group that failed on them, and to no other.

    Exits with 1 if some of them could not be sent, and says which and why.
    """
    given = filters(**conditions)
    async with session.transport() as transport:
        which = await _filter(transport, queue, id, given)
        outcome = await transport.redrive(which, limit=None if all or id else limit)
        left = 0 if id else await transport.count_dead_letters(which)
    if session.out.json:
        problems = [{"id": letter, "problem": problem} for letter, problem in outcome.problems.items()]
        session.out.document({"replayed": outcome.replayed, "failed": outcome.failed, "problems": problems})
    else:
        session.out.note(f"{number(outcome.replayed)} replayed, {number(outcome.failed)} failed.")
        for letter, problem in outcome.problems.items():
            session.out.error(f"dead letter {letter}: {problem}")
        if outcome.failed > len(outcome.problems):
            session.out.error(f"and {number(outcome.failed - len(outcome.problems))} more like these")
        if left > outcome.failed:
            session.out.hint(f"{number(left - outcome.failed)} more match; --all sends them all.")
    if outcome.failed:
        raise typer.Exit(FAILED)


@command(
    app,
    "purge",
    examples=["penstock dlq purge orders --until 30d", "penstock dlq purge --id 17 --yes", "penstock dlq purge --all"],
    options=filters,
)
async def purge(
    session: Session,
    queue: OptionalQueue = None,
    id: Ids = None,
    all: Annotated[bool, typer.Option("--all", help="All of them, of every queue if none is named.")] = False,
    yes: Yes = False,
    **conditions: Any,
) -> None:
    """Delete dead letters for good."""
    given = filters(**conditions)
    if not (queue or id or given or all):
        raise typer.BadParameter("say which: a queue, --id, a condition, or --all")
    async with session.transport() as transport:
        which = await _filter(transport, queue, id, given)
        if not yes:
            count = await transport.count_dead_letters(which)
            session.out.confirm(f"Delete {number(count)} dead letters for good?")
        purged = await transport.purge(which)
    if session.out.json:
        session.out.document({"purged": purged})
    else:
        session.out.note(f"Deleted {number(purged)} dead letters.")


async def _filter(
    transport: Transport, queue: str | None, ids: list[int] | None, given: dict[str, Any]
) -> DeadLetterFilter:
    from penstock.core.errors import NotFound
    from penstock.log.dead_letters.models import DeadLetterFilter

    if queue is not None:
        await find_queue(transport, queue)
    which = DeadLetterFilter(ids=ids, queue=queue, **given)
    if ids:
        there = {letter.id for letter in await transport.dead_letters(which, limit=len(ids))}
        missing = [str(each) for each in ids if each not in there]
        if missing:
            raise NotFound(f"there is no dead letter {', '.join(missing)}; it may have been redriven or purged")
    return which


async def _find_letter(transport: Transport, id: int) -> DeadLetter:
    from penstock.core.errors import NotFound
    from penstock.log.dead_letters.models import DeadLetterFilter

    found = await transport.dead_letters(DeadLetterFilter(ids=[id]), limit=1)
    if not found:
        raise NotFound(f"there is no dead letter {id}; it may have been redriven or purged")
    return found[0]


def _shortened(error: str) -> str:
    line = " ".join(error.split())
    return line if len(line) <= _LONGEST_ERROR else line[: _LONGEST_ERROR - 1] + "…"
