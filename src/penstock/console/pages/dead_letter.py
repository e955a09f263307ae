"""One dead letter: the event, what went wrong, what was tried; corrected, sent back or thrown away."""

from __future__ import annotations

import hashlib
from typing import Any

from nicegui import ui

from penstock.console.page import View, link
from penstock.console.widgets import forms, parts, payloads
from penstock.console.widgets.editor import editor
from penstock.core import formatting
from penstock.core.errors import NotFound
from penstock.log.dead_letters.models import DeadLetter, DeadLetterFilter
from penstock.log.write.batch import Batch
from penstock.log.write.json_events import JsonEvents
from penstock.server.auth.identity import Role

PATH = "/dead-letters"
_WHY_NOT = "Your key may not do this: it needs the role admin"
#: Larger ones are not edited in a browser.
_MOST = 1_000_000


async def build(view: View, id: int) -> None:
    """Make the page of a dead letter."""
    try:
        letter = await view.log.dead_letter(id)
    except NotFound:
        letter = None
    forms.trail(("Dead letters", PATH), here=f"#{id}")
    if letter is None or not view.sees(letter.queue):
        parts.nothing("There is no such dead letter", "It was sent back or thrown away.", icon="task_alt")
        return
    with parts.card("What went wrong", hint=f"In the stage {letter.stage}, {view.times.ago(letter.failed_at)}"):
        error = parts.text(letter.error, "ps-error", tag="pre")
        error.props["tabindex"] = "0"
        if letter.traceback:
            trace = parts.text(letter.traceback, "ps-trace", tag="pre")
            trace.props["tabindex"] = "0"
            trace.props["aria-label"] = "Traceback"
    with parts.element("div", "ps-grid-side"):
        _event(view, letter)
        with parts.element("div", "ps-stack"):
            _facts(view, letter)
            _history(view, letter)


def _facts(view: View, letter: DeadLetter) -> None:
    with parts.card("The event"):
        forms.facts(
            [
                ("Queue", letter.queue),
                ("Group", letter.group or "–"),
                ("Key", "–" if letter.key is None else letter.key),
                ("Id", letter.event_id or "–"),
                ("Partition", letter.partition or "–"),
                ("Offset", formatting.number(letter.offset)),
                ("Attempts", formatting.number(letter.attempts)),
                ("Redrives", formatting.number(letter.redrives)),
                ("Event time", view.times.full(letter.event_time)),
                ("Appended", view.times.full(letter.appended_at)),
                ("First failed", view.times.full(letter.first_failed_at)),
                ("Last failed", view.times.full(letter.failed_at)),
                *letter.headers.items(),
            ]
        )


def _history(view: View, letter: DeadLetter) -> None:
    if not letter.history:
        return
    with parts.card("What was tried before"), parts.element("ul", "ps-stack"):
        for past in reversed(letter.history):
            with parts.element("li"):
                when, what = _told(view, past)
                parts.text(when, "ps-muted ps-small")
                parts.text(what, "ps-break", tag="p")


def _told(view: View, past: dict[str, Any]) -> tuple[str, str]:
    when = forms.moment(past.get("edited_at") or past.get("failed_at"), view.times.zone)
    if "edited_at" in past:
        return f"{view.times.full(when)} · edited", f"It was {payloads.preview(str(past.get('data', '')).encode())}"
    attempts = past.get("attempts") or 1
    tries = "at the first attempt" if attempts == 1 else f"after {attempts} attempts"
    return f"{view.times.full(when)} · failed {tries}", str(past.get("error", "")).partition("\n")[0]


def _event(view: View, letter: DeadLetter) -> None:
    was_event = bool(letter.group)
    may = view.may(Role.ADMIN, queue=letter.queue)
    hint = "Correct it before it is sent back" if was_event else "It never was an event: correct it and push it"
    with parts.card("Data", hint=hint, classes="ps-top"):
        before = payloads.pretty(letter.raw)
        if len(before) > _MOST:
            # Written by payloads, which escapes it.
            ui.html(payloads.coloured(letter.raw), sanitize=False)
            text = None
        else:
            text = editor(before, "JSON", "Data of the event, JSON", height="24rem")
            text.set_enabled(may)

        async def send() -> None:
            given = before if text is None else (text.value or "")
            if not was_event:
                await _push(view, letter, given)
            elif given == before:
                await _redrive(view, letter, None)
            else:
                await _redrive(view, letter, given)

        async def purge() -> None:
            if not await parts.confirm(
                f"Throw the dead letter #{letter.id} away?", "The event is gone for good.", "Purge"
            ):
                return
            async with view.acting("purge a dead letter", Role.ADMIN, subject=str(letter.id), queue=letter.queue):
                await view.log.purge(DeadLetterFilter(ids=[letter.id]))
                ui.navigate.to(PATH)

        with parts.element("div", "ps-row ps-end"):
            parts.button("Purge", purge, icon="delete", tone="danger", enabled=may, why_not=_WHY_NOT)
            label = "Redrive" if was_event else "Push corrected"
            parts.button(label, send, icon="replay", tone="primary", enabled=may, why_not=_WHY_NOT)


async def _redrive(view: View, letter: DeadLetter, data: str | None) -> None:
    action = "redrive a dead letter" if data is None else "edit and redrive a dead letter"
    async with view.acting(action, Role.ADMIN, subject=str(letter.id), queue=letter.queue):
        if data is None:
            done = await view.log.redrive(DeadLetterFilter(ids=[letter.id]), limit=1)
        else:
            done = await view.log.redrive_edited(letter.id, data.encode("utf-8", "surrogatepass"))
        tell(done.replayed, done.failed, next(iter(done.problems.values()), ""))
        if done.replayed:
            ui.navigate.to(link("/queues", queue=letter.queue, group=letter.group))


async def _push(view: View, letter: DeadLetter, data: str) -> None:
    """What was never an event becomes one, and is no dead letter any more."""
    raw = data.encode("utf-8", "surrogatepass")
    # The same correction, sent twice, is one event.
    once = f"dead-letter-{letter.id}-{hashlib.sha256(raw).hexdigest()[:16]}"
    async with view.acting("push a dead letter corrected", Role.ADMIN, subject=str(letter.id), queue=letter.queue):
        await view.log.push([Batch(letter.queue, JsonEvents([raw], [letter.key]))], idempotency_key=once)
        await view.log.purge(DeadLetterFilter(ids=[letter.id]))
        ui.navigate.to(link("/queues", queue=letter.queue, tab="events"))


def tell(sent: int, refused: int, why: str) -> None:
    """Say how many were sent back, and why others were not."""
    if sent:
        said = "1 dead letter was sent back" if sent == 1 else f"{formatting.number(sent)} dead letters were sent back"
        ui.notify(said, type="positive", position="bottom")
    if refused:
        said = f"{formatting.number(refused)} could not be sent back: {why}"
        ui.notify(said, type="negative", position="bottom", close_button="Close", timeout=10_000)
