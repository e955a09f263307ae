"""Dialog that pushes a test event."""

from __future__ import annotations

from nicegui import ui

from penstock.console.page import View, url_for
from penstock.console.widgets import elements
from penstock.console.widgets.editor import code_editor
from penstock.log.write.batch import Batch
from penstock.log.write.json_events import JsonEvents
from penstock.log.write.result import PushResult
from penstock.server.auth.identity import Role


def push_button(view: View, queue: str) -> None:
    elements.button(
        "Push a test event",
        lambda: _open_dialog(view, queue),
        icon="add",
        tone="primary",
        disabled_reason=view.missing_permission(Role.PRODUCE, queue=queue),
    )


async def _open_dialog(view: View, queue: str) -> None:
    with view.client.content, elements.dialog(f"Push an event to {queue}") as dialog:
        with elements.element("div", "ps-row"):
            key = ui.input("Key", placeholder="none").props("outlined dense").classes("ps-grow")
            id = ui.input("Id", placeholder="none").props("outlined dense").classes("ps-grow")
        data = code_editor('{\n  "test": true\n}', "JSON", "Data of the event, JSON", height="14rem")
        error = elements.error_text()

        async def push() -> None:
            error.set_text("")
            try:
                events = JsonEvents([(data.value or "").encode()], [key.value or None], [id.value or None])
                async with view.action("push a test event", Role.PRODUCE, subject=queue, queue=queue):
                    (result,) = await view.log.push([Batch(queue, events)])
                    dialog.submit(result)
            except UnicodeEncodeError:
                error.set_text("The text contains an unpaired surrogate: remove it")

        with elements.element("div", "ps-row ps-end"):
            elements.button("Cancel", dialog.close)
            elements.button("Push", push, tone="primary")
    result: PushResult | None = await elements.open_dialog(dialog)
    if result is not None:
        with view.client.content:
            _show_result(queue, result)


def _show_result(queue: str, result: PushResult) -> None:
    """Open the page of the stored event, or notify the user that it was dropped."""
    if result.shed:
        ui.notify(
            "The event was dropped: the queue is full, and its overflow policy is shed",
            type="warning",
            position="bottom",
        )
        return
    (stored,) = result
    if stored.duplicate:
        ui.notify("Duplicate: this is the event that has the same id", type="warning", position="bottom")
    ui.navigate.to(url_for("/queues", queue=queue, tab="events", partition=stored.partition, offset=stored.offset))
