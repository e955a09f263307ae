"""Dead letters: grouped by what went wrong; one of them in detail, edited, sent back or thrown away."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from penstock.console.assets import address_of_asset
from penstock.console.page import Page, View, link
from penstock.console.pages import dead_letter
from penstock.console.widgets import forms, parts, payloads
from penstock.console.widgets.parts import Cell, Column
from penstock.core import formatting
from penstock.core.errors import NotFound
from penstock.log.dead_letters.models import DeadLetter, DeadLetterFilter, DeadLetterKind
from penstock.log.dead_letters.store import KIND_SAMPLE
from penstock.server.auth.identity import Role

PATH = "/dead-letters"
_PAGE = 50
#: Sent back or thrown away at a time, so that nobody waits for a transaction of all of them.
_STEP = 500

_KINDS = (
    "What went wrong",
    "Queue",
    Column("Group", classes="ps-desk"),
    Column("Stage", classes="ps-desk"),
    Column("How many", is_number=True),
    Column("First", is_number=True, classes="ps-desk"),
    Column("Last", is_number=True),
)
_LETTERS = (
    Column("Number", is_number=True),
    "Key",
    "Error",
    Column("Data", classes="ps-desk"),
    Column("Attempts", is_number=True, classes="ps-desk"),
    Column("Failed", is_number=True),
)


async def build(view: View) -> None:
    """Make the page."""
    ui.add_head_html(f'<link rel="stylesheet" href="{address_of_asset("details.css")}">')
    if "id" in view.params:
        await dead_letter.build(view, forms.whole(view.params, "id"))
    elif "kind" in view.params:
        await _kind(view)
    else:
        await _kinds(view)


async def _kinds(view: View) -> None:
    only = view.params.get("queue", "")
    queues = [queue.name for queue in await view.log.queues() if view.sees(queue.name)]
    if len(queues) > 1:
        with forms.filters(PATH, "Which queue", {}):
            forms.choice("queue", "Queue", {"": "All queues", **{name: name for name in queues}}, only)
            forms.submit("Show")
    with parts.tiles():
        count = parts.tile("Dead letters")
        kinds_tile = parts.tile("Kinds of error")
        last = parts.tile("Last failure")
    with parts.card("By what went wrong", hint="The latest failure first") as card:
        table = parts.table("Dead letters by kind of error", _KINDS)
    cut = parts.text(f"Of each queue, the newest {formatting.number(KIND_SAMPLE)} are counted.", "ps-muted ps-small")
    none = parts.nothing(
        "No dead letters",
        "An event that fails too often, or cannot be read, waits here until somebody sends it back or throws it away.",
        icon="task_alt",
    )

    async def read() -> list[DeadLetterKind]:
        try:
            return await view.log.dead_letter_kinds(only or None)
        except NotFound:
            return []

    def show(kinds: list[DeadLetterKind]) -> None:
        seen = [kind for kind in kinds if view.sees(kind.queue)]
        card.set_visibility(bool(seen))
        none.set_visibility(not seen)
        cut.set_visibility(any(not kind.is_whole for kind in seen))
        total = sum(kind.count for kind in seen)
        count.set(formatting.compact(total), tone="bad" if total else "good")
        kinds_tile.set(formatting.number(len(seen)))
        newest = max((kind.failed_at for kind in seen), default=None)
        last.set(view.times.clock(newest), view.times.ago(newest) if newest is not None else "")
        table.set(
            [
                Cell(kind.kind or "no reason given", href=_address(kind), classes="ps-strong ps-wide-text"),
                Cell(kind.queue, href=link("/queues", queue=kind.queue)),
                kind.group or "–",
                kind.stage,
                formatting.number(kind.count),
                view.times.ago(kind.first_failed_at),
                view.times.ago(kind.failed_at),
            ]
            for kind in seen
        )

    await view.follow(("dead letters", only), read, show, seconds=2.0)


def _address(kind: DeadLetterKind) -> str:
    return link(PATH, queue=kind.queue, group=kind.group or None, stage=kind.stage, kind=kind.kind)


async def _kind(view: View) -> None:
    queue, kind = view.params.get("queue", ""), view.params["kind"]
    group, stage = view.params.get("group"), view.params.get("stage", "")
    which = DeadLetterFilter(queue=queue or None, group=group or None, kind=kind, stage=stage)
    forms.trail(("Dead letters", PATH), here=kind or "no reason given")
    if not queue or not view.sees(queue):
        parts.nothing("There are none of these", "They were sent back or thrown away, or the queue is gone.")
        return
    page = forms.whole(view.params, "page")
    try:
        found = await view.log.dead_letters(which, limit=_PAGE + 1, offset=page * _PAGE)
    except NotFound:
        found = []
    if not found:
        parts.nothing(
            "There are none of these", "They were sent back or thrown away, or the queue is gone.", icon="task_alt"
        )
        return
    total = await view.log.count_dead_letters(which)
    with parts.element("div", "ps-row ps-between"):
        with parts.element("div", "ps-row"):
            parts.badge(queue, "info")
            if group:
                parts.badge(f"group {group}", "idle")
            parts.badge(f"stage {stage}", "idle")
        _buttons(view, queue, which, total, can_redrive=bool(group))
    with parts.card(f"{formatting.number(total)} dead letters", hint="The latest failure first"):
        table = parts.table("Dead letters", _LETTERS)
    table.set(_rows(view, found[:_PAGE]))
    given = {"queue": queue, "group": group, "stage": stage, "kind": kind}
    forms.pager(PATH, given, page, len(found) > _PAGE, "the dead letters")


def _rows(view: View, letters: Sequence[DeadLetter]) -> list[list[Cell | str]]:
    return [
        [
            Cell(f"#{letter.id}", href=link(PATH, id=letter.id), classes="ps-strong"),
            "–" if letter.key is None else letter.key,
            Cell(letter.error.partition("\n")[0][:200], classes="ps-wide-text"),
            Cell(payloads.preview(letter.raw), classes="ps-mono ps-muted ps-clip"),
            formatting.number(letter.attempts),
            view.times.ago(letter.failed_at),
        ]
        for letter in letters
    ]


def _buttons(view: View, queue: str, which: DeadLetterFilter, total: int, *, can_redrive: bool) -> None:
    may = view.may(Role.ADMIN, queue=queue)
    why_not = "Your key may not do this: it needs the role admin"

    async def redrive() -> None:
        question = f"Send {formatting.number(total)} dead letters back?"
        detail = "Each is appended again for the group that failed on it. Those that fail again come back here."
        if not await parts.confirm(question, detail, "Redrive all", danger=False):
            return
        sent, refused = 0, ""
        async with view.acting("redrive dead letters", Role.ADMIN, subject=queue, queue=queue):
            ids = await view.log.dead_letter_ids(which)
            for start in range(0, len(ids), _STEP):
                done = await view.log.redrive(DeadLetterFilter(ids=ids[start : start + _STEP]), limit=_STEP)
                sent += done.replayed
                refused = refused or next(iter(done.problems.values()), "")
            dead_letter.tell(sent, len(ids) - sent, refused)
            if not refused:
                ui.navigate.to(PATH)

    async def purge() -> None:
        question = f"Throw {formatting.number(total)} dead letters away?"
        if not await parts.confirm(question, "Their events are gone for good. This cannot be undone.", "Purge all"):
            return
        async with view.acting("purge dead letters", Role.ADMIN, subject=queue, queue=queue):
            await view.log.purge(which)
            ui.navigate.to(PATH)

    with parts.element("div", "ps-row"):
        parts.button(
            "Redrive all",
            redrive,
            icon="replay",
            tone="primary",
            enabled=may and can_redrive,
            why_not=why_not if not may else "These were never events: correct one, push it again and purge it",
        )
        parts.button("Purge all", purge, icon="delete", tone="danger", enabled=may, why_not=why_not)


PAGE = Page(PATH, "Dead letters", "report", build, short="Dead")
