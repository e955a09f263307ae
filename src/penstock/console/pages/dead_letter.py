"""One dead letter: its event, its error and its history, with buttons to edit, redrive and purge it."""

from __future__ import annotations

import hashlib
from typing import Any

from nicegui import ui

from penstock.console.page import View, url_for
from penstock.console.widgets import elements, forms, payloads
from penstock.console.widgets.editor import code_editor
from penstock.core import formatting
from penstock.core.errors import NotFound
from penstock.log.dead_letters.dead_letter import DeadLetter, DeadLetterFilter
from penstock.log.write.encode.batch import Batch
from penstock.log.write.encode.json_events import JsonEvents
from penstock.server.auth.identity import Role

PATH = "/dead-letters"
#: Largest data that can be edited in the browser.
_MAX_EDITABLE_CHARACTERS = 1_000_000
#: Characters of a problem in the URL of the page that shows it.
_MAX_PROBLEM = 300


async def build(view: View, id: int) -> None:
    try:
        letter = await view.log.dead_letter(id)
    except NotFound:
        letter = None
    forms.breadcrumb(("Dead letters", PATH), current=f"#{id}")
    if letter is None or not view.can_see(letter.queue):
        elements.empty_state("There is no such dead letter", "It was redriven or purged.", icon="task_alt")
        return
    with elements.card("Error", hint=f"in the stage {letter.stage}, {view.times.ago(letter.failed_at)}"):
        error = elements.text(letter.error, "ps-error", tag="pre")
        error.props["tabindex"] = "0"
        if letter.traceback:
            trace = elements.text(letter.traceback, "ps-code-block", tag="pre")
            trace.props["tabindex"] = "0"
            trace.props["aria-label"] = "Traceback"
    with elements.element("div", "ps-grid ps-main-and-side"):
        _event(view, letter)
        with elements.element("div", "ps-stack"):
            _facts(view, letter)
            _history(view, letter)


def _facts(view: View, letter: DeadLetter) -> None:
    with elements.card("The event"):
        forms.description_list(
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
    with elements.card("History"), elements.element("ul", "ps-stack"):
        for entry in reversed(letter.history):
            with elements.element("li"):
                title, detail = _describe_entry(view, entry)
                elements.text(title, "ps-muted ps-small")
                elements.text(detail, "ps-break", tag="p")


def _describe_entry(view: View, entry: dict[str, Any]) -> tuple[str, str]:
    time = view.times.full(forms.parse_time(entry.get("edited_at") or entry.get("failed_at"), view.times.zone))
    if "edited_at" in entry:
        return f"{time} · edited", f"Data before: {payloads.preview(str(entry.get('data', '')).encode())}"
    attempts = entry.get("attempts") or 1
    tries = "at the first attempt" if attempts == 1 else f"after {attempts} attempts"
    return f"{time} · failed {tries}", str(entry.get("error", "")).partition("\n")[0]


def _event(view: View, letter: DeadLetter) -> None:
    was_event = bool(letter.group)
    reason = view.missing_permission(Role.ADMIN, queue=letter.queue)
    hint = "Edit before the redrive" if was_event else "Not stored as an event: correct the data and push it"
    with elements.card("Data", hint=hint):
        before = payloads.format_json(letter.raw)
        if len(before) > _MAX_EDITABLE_CHARACTERS:
            # highlight_json escapes the data.
            ui.html(payloads.highlight_json(letter.raw), sanitize=False)
            text = None
        else:
            text = code_editor(before, "JSON", "Data of the event, JSON", height="24rem")
            text.set_enabled(not reason)

        async def send() -> None:
            edited = before if text is None else (text.value or "")
            if was_event and edited == before:
                if await _confirm_unchanged(view, letter):
                    await _redrive(view, letter, None)
            elif was_event:
                await _redrive(view, letter, edited)
            else:
                await _push(view, letter, edited)

        async def purge() -> None:
            if not await elements.confirm(
                f"Purge dead letter #{letter.id}?", "This deletes the event and cannot be undone.", "Purge"
            ):
                return
            async with view.action("purge a dead letter", Role.ADMIN, subject=str(letter.id), queue=letter.queue):
                await view.log.purge(DeadLetterFilter(ids=[letter.id]))
                ui.navigate.to(PATH)

        with elements.element("div", "ps-row ps-end"):
            elements.button("Purge", purge, icon="delete", tone="danger", disabled_reason=reason)
            label = "Redrive" if was_event else "Push corrected"
            elements.button(label, send, icon="replay", tone="primary", disabled_reason=reason)


async def _confirm_unchanged(view: View, letter: DeadLetter) -> bool:
    redrives = "" if not letter.redrives else f" It has been redriven {_times(letter.redrives)} already."
    detail = (
        f"The group {letter.group} gets the same event again. It will fail again unless you have fixed the cause."
        f"{redrives} To change the event, edit its data first."
    )
    with view.client.content:
        return await elements.confirm(
            f"Redrive dead letter #{letter.id} unchanged?", detail, "Redrive unchanged", danger=False
        )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{formatting.number(number)} times"


async def _redrive(view: View, letter: DeadLetter, data: str | None) -> None:
    action = "redrive a dead letter" if data is None else "edit and redrive a dead letter"
    async with view.action(action, Role.ADMIN, subject=str(letter.id), queue=letter.queue):
        if data is None:
            done = await view.log.redrive(DeadLetterFilter(ids=[letter.id]), limit=1)
        else:
            done = await view.log.redrive_edited(letter.id, data.encode("utf-8", "surrogatepass"))
        problem = next(iter(done.problems.values()), "")
        if done.replayed:
            open_redriven(letter.queue, letter.group, done.replayed, done.failed, problem)
        else:
            message = f"It could not be redriven: {problem}"
            ui.notify(message, type="negative", position="bottom", close_button="Close", timeout=10_000)


async def _push(view: View, letter: DeadLetter, data: str) -> None:
    """Push corrected data as an event and delete the dead letter."""
    raw = data.encode("utf-8", "surrogatepass")
    # A retry with the same data does not push a second event.
    idempotency_key = f"dead-letter-{letter.id}-{hashlib.sha256(raw).hexdigest()[:16]}"
    async with view.action("push a corrected dead letter", Role.ADMIN, subject=str(letter.id), queue=letter.queue):
        await view.log.push([Batch(letter.queue, JsonEvents([raw], [letter.key]))], idempotency_key=idempotency_key)
        await view.log.purge(DeadLetterFilter(ids=[letter.id]))
        ui.navigate.to(url_for("/queues", queue=letter.queue, tab="events"))


def open_redriven(queue: str, group: str | None, redriven: int, failed: int, problem: str) -> None:
    """Open the list of dead letters, which says what the redrive did."""
    params = {"redriven": redriven or None, "failed": failed or None, "problem": problem[:_MAX_PROBLEM] or None}
    ui.navigate.to(url_for(PATH, queue=queue, group=group or None, **params))
