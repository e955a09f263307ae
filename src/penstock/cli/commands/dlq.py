"""``penstock dlq``: inspect, redrive and purge dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import json_output
from penstock.cli.command import FAILED, command
from penstock.cli.command_session import CommandSession, find_queue
from penstock.cli.commands.group import OptionalQueue
from penstock.cli.commands.queue import Yes
from penstock.cli.times import format_time, parse_time
from penstock.core.errors import NotFound
from penstock.core.formatting import counted, number

if TYPE_CHECKING:
    from penstock.cli.output import Output
    from penstock.client.dead_letters import DeadLetterMapping
    from penstock.client.transport import Transport
    from penstock.log.dead_letters.dead_letter import DeadLetter, DeadLetterEdit, DeadLetterFilter

app = typer.Typer(help="Dead letters: inspect events that failed, replay them, or purge them.")

_filter: Any = partial(typer.Option, rich_help_panel="Filters")
_mapping: Any = partial(typer.Option, rich_help_panel="Edit")
_LONGEST_ERROR = 60
#: The dead letters that are shown before a redrive with a mapping.
_SHOWN_EDITS = 5
_MAX_PREVIEW = 1000

Ids = Annotated[
    list[int] | None,
    typer.Option("--id", metavar="ID", help="The dead letter with this id; may be repeated.", show_default=False),
]


def filters(
    group: Annotated[str | None, _filter(metavar="GROUP", help="Failed in this group.")] = None,
    key: Annotated[str | None, _filter(metavar="KEY", help="With this key.")] = None,
    error: Annotated[str | None, _filter(metavar="TEXT", help="With this text in the error.")] = None,
    since: Annotated[
        str | None, _filter(metavar="TIME", help="Failed at this time or later, such as 2h for two hours ago.")
    ] = None,
    until: Annotated[str | None, _filter(metavar="TIME", help="Failed before this time.")] = None,
    stage: Annotated[str | None, _filter(metavar="STAGE", help="Failed in this stage, as `dlq show` names it.")] = None,
    kind: Annotated[
        str | None, _filter(metavar="TEXT", help="With this first line of the error, # in place of numbers and ids.")
    ] = None,
    partition: Annotated[str | None, _filter(metavar="NAME", help="Of this partition.")] = None,
) -> dict[str, Any]:
    """Return the filters that were given, in the form of DeadLetterFilter."""
    values = {
        "group": group,
        "key": key,
        "error": error,
        "since": None if since is None else parse_time(since),
        "until": None if until is None else parse_time(until),
        "stage": stage,
        "kind": kind,
        "partition": partition,
    }
    return {name: value for name, value in values.items() if value is not None}


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
    session: CommandSession,
    queue: OptionalQueue = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="The maximum number.")] = 100,
    offset: Annotated[int, typer.Option(min=0, metavar="N", help="The number to skip.")] = 0,
    **conditions: Any,
) -> None:
    """List dead letters, the newest failure first."""
    async with session.transport() as transport:
        criteria = await _build_filter(transport, queue, None, filters(**conditions))
        letters = await transport.dead_letters(criteria, limit=limit, offset=offset)
        total = await transport.count_dead_letters(criteria)
    rows = [
        (
            str(letter.id),
            letter.queue,
            letter.group,
            letter.key or "–",
            number(letter.attempts),
            number(letter.redrives),
            format_time(letter.failed_at),
            _shorten(letter.error),
        )
        for letter in letters
    ]
    numbers = ("id", "attempts", "redriven")
    columns = ("id", "queue", "group", "key", *numbers[1:], "failed", "error")
    empty = "There are no dead letters." if not total else f"There are only {number(total)}."
    listing = map(json_output.dead_letter, letters)
    session.out.listing(listing, columns, rows, right=numbers, empty=empty, lines=True)
    if letters and offset + len(letters) < total:
        session.out.hint(f"{number(len(letters))} of {number(total)}; --offset {offset + len(letters)} shows the next.")


@command(app, "show", examples=["penstock dlq show 17", "penstock dlq show 17 --json | jq .data"])
async def show(
    session: CommandSession, id: Annotated[int, typer.Argument(metavar="ID", help="The id of the dead letter.")]
) -> None:
    """Show a dead letter: the event, the error, the traceback and earlier failures."""
    from penstock.log.dead_letters.dead_letter import DeadLetterFilter

    async with session.transport() as transport:
        (letter,) = await _find_letters(transport, DeadLetterFilter(ids=[id]))
    if session.out.json:
        session.out.document(json_output.dead_letter(letter))
    else:
        _show(session.out, letter)


def _show(out: Output, letter: DeadLetter) -> None:
    import msgspec

    out.fields(
        f"Dead letter {letter.id}",
        [
            ("queue", letter.queue),
            ("group", letter.group),
            ("key", letter.key or "–"),
            ("partition", f"{letter.partition or letter.partition_id}, offset {letter.offset}"),
            ("event id", letter.event_id or "–"),
            ("event time", format_time(letter.event_time)),
            ("appended", format_time(letter.appended_at)),
            ("stage", letter.stage),
            ("attempts", number(letter.attempts)),
            ("failed", format_time(letter.failed_at)),
            ("failed first", format_time(letter.first_failed_at)),
            ("redriven", counted(letter.redrives, "time")),
            *(("header", f"{name}: {value}") for name, value in letter.headers.items()),
        ],
    )
    out.section("Error", letter.error)
    if letter.traceback:
        out.section("Traceback", letter.traceback)
    for failure in letter.history:
        attempts = counted(failure.get("attempts") or 1, "attempt")
        title = f"Failed {failure.get('failed_at')}, after {attempts} ({failure.get('stage')})"
        out.section(title, str(failure.get("error")))
    out.section("Data", msgspec.json.format(letter.raw, indent=2).decode())


@command(
    app,
    "redrive",
    examples=[
        "penstock dlq redrive --id 17 --id 18",
        "penstock dlq redrive orders --group billing --error timeout",
        "penstock dlq redrive orders --all",
        "penstock dlq redrive orders --error price --map '* EXCEPT (prise), cast(prise AS decimal) AS price'",
        "penstock dlq redrive orders --map-python correct.py:correct --preview",
    ],
    options=filters,
)
async def redrive(
    session: CommandSession,
    queue: OptionalQueue = None,
    id: Ids = None,
    all: Annotated[bool, typer.Option("--all", help="Redrive all that match, without a limit.")] = False,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="The maximum number, oldest first.")] = 100,
    map: Annotated[
        str | None,
        _mapping(
            "--map", metavar="SQL", help="Make the new data with a select list, such as \"*, 'EUR' AS currency\"."
        ),
    ] = None,
    map_python: Annotated[
        str | None,
        _mapping("--map-python", metavar="FILE:FUNCTION", help="Make the new data with a function of the data."),
    ] = None,
    preview: Annotated[
        bool, _mapping("--preview", help="Show the data before and after the mapping, and replay nothing.")
    ] = False,
    yes: Annotated[bool, _mapping("--yes", "-y", help="Replay edited dead letters without asking.")] = False,
    **conditions: Any,
) -> None:
    """Replay dead letters to the group that failed on them, and to no other group.

    With a mapping, their data is edited first: the command shows the first ones before and after, and asks.

    Prints each dead letter that cannot be replayed with the reason, and exits with 1.
    """
    parsed = filters(**conditions)
    mapping = _read_mapping(map, map_python)
    if preview and mapping is None:
        raise typer.BadParameter("--preview shows the result of a mapping: give --map or --map-python")
    most = None if all or id else limit
    async with session.transport() as transport:
        criteria = await _build_filter(transport, queue, id, parsed)
        if mapping is None:
            result = await transport.redrive(criteria, limit=most)
        else:
            if preview or not yes:
                total = await transport.count_dead_letters(criteria)
                wanted = total if most is None else min(total, most)
                shown = min(_MAX_PREVIEW, limit) if preview else _SHOWN_EDITS
                _show_edits(session.out, await transport.preview_mapping(criteria, mapping, limit=shown), wanted)
                if preview or not wanted:
                    return
                session.out.confirm(f"Replay {counted(wanted, 'dead letter')} with this mapping?")
            result = await transport.redrive_mapped(criteria, mapping, limit=most)
        left = 0 if id else await transport.count_dead_letters(criteria)
    if session.out.json:
        problems = [{"id": letter, "problem": problem} for letter, problem in result.problems.items()]
        session.out.document({"replayed": result.replayed, "failed": result.failed, "problems": problems})
    else:
        session.out.note(f"{number(result.replayed)} replayed, {number(result.failed)} failed.")
        if mapping is None and result.replayed:
            session.out.hint(
                "The events are unchanged, and will fail again unless their cause is fixed; --map and --map-python "
                "edit them."
            )
        for letter, problem in result.problems.items():
            session.out.error(f"dead letter {letter}: {problem}")
        if result.failed > len(result.problems):
            session.out.error(f"and {number(result.failed - len(result.problems))} more")
        if left > result.failed:
            session.out.hint(f"{number(left - result.failed)} more match; --all replays all of them.")
    if result.failed:
        raise typer.Exit(FAILED)


def _read_mapping(sql: str | None, function: str | None) -> DeadLetterMapping | None:
    if sql is not None and function is not None:
        raise typer.BadParameter("give --map or --map-python, not both")
    if function is None:
        return sql
    from penstock.cli.program_loader import load_function

    return load_function(function)


def _show_edits(out: Output, edits: Sequence[DeadLetterEdit], wanted: int) -> None:
    if out.json:
        for edit in edits:
            out.line(json_output.dead_letter_edit(edit))
        return
    for edit in edits:
        lines = [f"- {bytes(edit.before_text).decode()}"]
        if edit.problem is not None:
            lines.append(f"! {edit.problem}")
        elif edit.is_changed:
            lines.append(f"+ {bytes(edit.after_text).decode()}")
        else:
            lines.append("= unchanged, so it will probably fail again")
        out.section(f"{edit.id}  {edit.queue}  {edit.group or '–'}  {edit.key or '–'}", "\n".join(lines))
    if not edits:
        out.hint("There are no dead letters.")
    elif wanted > len(edits):
        out.hint(f"{number(len(edits))} of {number(wanted)}.")


@command(
    app,
    "purge",
    examples=["penstock dlq purge orders --until 30d", "penstock dlq purge --id 17 --yes", "penstock dlq purge --all"],
    options=filters,
)
async def purge(
    session: CommandSession,
    queue: OptionalQueue = None,
    id: Ids = None,
    all: Annotated[
        bool, typer.Option("--all", help="Purge all dead letters, of every queue if none is named.")
    ] = False,
    yes: Yes = False,
    **conditions: Any,
) -> None:
    """Delete dead letters permanently."""
    parsed = filters(**conditions)
    if not (queue or id or parsed or all):
        raise typer.BadParameter("give a queue, --id, a filter, or --all")
    async with session.transport() as transport:
        criteria = await _build_filter(transport, queue, id, parsed)
        if not yes:
            count = await transport.count_dead_letters(criteria)
            session.out.confirm(f"Delete {counted(count, 'dead letter')} permanently?")
        purged = await transport.purge(criteria)
    session.out.result({"purged": purged}, f"Deleted {counted(purged, 'dead letter')}.")


async def _build_filter(
    transport: Transport, queue: str | None, ids: list[int] | None, conditions: dict[str, Any]
) -> DeadLetterFilter:
    from penstock.log.dead_letters.dead_letter import DeadLetterFilter

    if queue is not None:
        await find_queue(transport, queue)
    criteria = DeadLetterFilter(ids=ids, queue=queue, **conditions)
    if ids:
        await _find_letters(transport, criteria)
    return criteria


async def _find_letters(transport: Transport, criteria: DeadLetterFilter) -> Sequence[DeadLetter]:
    """Return the dead letters with the ids of the filter, or raise NotFound if one does not exist."""
    ids = criteria.ids or []
    letters = await transport.dead_letters(criteria, limit=len(ids))
    missing = sorted(set(ids) - {letter.id for letter in letters})
    if missing:
        names = ", ".join(map(str, missing))
        raise NotFound(f"there is no dead letter {names}; it may have been redriven or purged")
    return letters


def _shorten(error: str) -> str:
    line = " ".join(error.split())
    return line if len(line) <= _LONGEST_ERROR else line[: _LONGEST_ERROR - 1] + "…"
