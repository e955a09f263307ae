"""Push one event by hand, to see what becomes of it."""

from __future__ import annotations

from nicegui import ui

from penstock.console.page import View, link
from penstock.console.widgets import parts
from penstock.console.widgets.editor import editor
from penstock.log.write.batch import Batch
from penstock.log.write.json_events import JsonEvents
from penstock.log.write.result import PushResult
from penstock.server.auth.identity import Role


def button(view: View, queue: str) -> None:
    """What opens the form."""
    parts.button(
        "Push a test event",
        lambda: _open(view, queue),
        icon="add",
        tone="primary",
        enabled=view.may(Role.PRODUCE, queue=queue),
        why_not="Your key may not push to this queue: it needs the role produce",
    )


async def _open(view: View, queue: str) -> None:
    with view.client.content, ui.dialog() as dialog, ui.card().classes("ps-dialog ps-wide"):
        dialog.props["aria-label"] = f"Push an event to {queue}"
        parts.text(f"Push an event to {queue}", tag="h2")
        with parts.element("div", "ps-row"):
            key = ui.input("Key", placeholder="none").props("outlined dense").classes("ps-grow")
            id = ui.input("Id", placeholder="none").props("outlined dense").classes("ps-grow")
        data = editor('{\n  "test": true\n}', "JSON", "Data of the event, JSON", height="14rem")
        wrong = parts.text("", "ps-trouble")
        wrong.props["role"] = "alert"

        async def push() -> None:
            wrong.set_text("")
            try:
                lines = JsonEvents([(data.value or "").encode()], [key.value or None], [id.value or None])
                async with view.acting("push a test event", Role.PRODUCE, subject=queue, queue=queue):
                    (result,) = await view.log.push([Batch(queue, lines)])
                    dialog.submit(result)
            except UnicodeEncodeError:
                wrong.set_text("The text holds half a character")

        with parts.element("div", "ps-row ps-end"):
            parts.button("Cancel", dialog.close)
            parts.button("Push", push, tone="primary")
    result: PushResult | None = await parts.answer_of(dialog)
    if result is not None:
        with view.client.content:
            _tell(queue, result)


def _tell(queue: str, result: PushResult) -> None:
    """Lead to where the event is, or say that it is nowhere."""
    if result.shed:
        ui.notify("The queue is full and sheds: the event was dropped", type="warning", position="bottom")
        return
    (stored,) = result
    if stored.duplicate:
        ui.notify("An event with that id was there already: this is it", type="warning", position="bottom")
    ui.navigate.to(link("/queues", queue=queue, tab="events", partition=stored.partition, offset=stored.offset))
