"""Dialog that edits dead letters in bulk with a mapping, previews the result, and redrives them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from nicegui import ui

from penstock.console.page import View, error_message
from penstock.console.polling import EXPECTED_ERRORS
from penstock.console.widgets import elements, payloads
from penstock.console.widgets.editor import code_editor
from penstock.core import formatting
from penstock.log.dead_letters.models import DeadLetterEdit, DeadLetterFilter, Edit
from penstock.stream.sql.json_mapping import compile_mapping

#: Dead letters that a preview maps, and those whose data it shows.
_PREVIEW_LETTERS = 200
_SHOWN_LETTERS = 3
_PREVIEW_BYTES = 4 << 20


async def edit_and_redrive(
    view: View, selection: DeadLetterFilter, total: int, redrive: Callable[[Edit], Awaitable[None]]
) -> None:
    """Ask for a mapping, show what it changes, and call ``redrive`` with it."""
    detail = (
        "A mapping is a list of fields in SQL, such as: * EXCEPT (prise), cast(prise AS decimal) AS price. It is "
        "applied to each event. The history of a dead letter keeps its old data."
    )
    count = formatting.number(total)
    with elements.dialog(f"Edit and redrive {count} dead letters", detail) as dialog:
        editor = code_editor("*", "PostgreSQL", "Mapping, SQL", height="6rem")
        error = elements.error_text()
        result = elements.element("div", "ps-stack ps-preview")
        result.props["aria-live"] = "polite"
        previewed = ""

        async def preview() -> None:
            nonlocal previewed
            text = editor.value or ""
            error.set_text("")
            result.clear()
            send_button.disable()
            try:
                edits = await view.log.preview_redrive(
                    selection, compile_mapping(text), limit=_PREVIEW_LETTERS, max_bytes=_PREVIEW_BYTES
                )
            except EXPECTED_ERRORS as problem:
                error.set_text(error_message(problem))
                return
            with result:
                _show_edits(edits, total)
            previewed = text
            if any(edit.problem is None for edit in edits):
                send_button.enable()

        def send() -> None:
            if (editor.value or "") != previewed:
                error.set_text("The mapping has changed since the preview: preview it again")
            else:
                dialog.submit(previewed)

        with elements.element("div", "ps-row ps-end"):
            elements.button("Cancel", dialog.close)
            elements.button("Preview", preview, icon="visibility")
            send_button = elements.button(f"Redrive {count}", send, icon="replay", tone="primary")
            send_button.disable()
    mapping = await elements.open_dialog(dialog)
    if mapping is not None:
        await redrive(compile_mapping(mapping))


def _show_edits(edits: Sequence[DeadLetterEdit], total: int) -> None:
    refused = [edit for edit in edits if edit.problem is not None]
    unchanged = [edit for edit in edits if edit.problem is None and not edit.is_changed]
    changed = len(edits) - len(refused) - len(unchanged)
    scope = f"Of the oldest {formatting.number(len(edits))}" if len(edits) < total else f"Of {formatting.number(total)}"
    elements.text(f"{scope}: {formatting.number(changed)} change.", "ps-strong", tag="p")
    if unchanged:
        message = f"{formatting.number(len(unchanged))} stay as they are, and will probably fail again."
        elements.badge(message, "warn")
    if refused:
        message = f"{formatting.number(len(refused))} cannot be edited and stay dead letters: {refused[0].problem}"
        elements.badge(message, "bad")
    # One that changes is the best example, then those with a problem.
    examples = sorted(edits, key=lambda edit: (not edit.is_changed, edit.problem is None))[:_SHOWN_LETTERS]
    for edit in examples:
        name = f"#{edit.id}" if edit.key is None else f"#{edit.id}, key {edit.key}"
        elements.text(name, "ps-muted ps-small", tag="p")
        with elements.element("div", "ps-grid ps-before-after"):
            _show_data("Before", bytes(edit.before_text))
            if edit.problem is None:
                _show_data("After", bytes(edit.after_text))
            else:
                elements.text(edit.problem, "ps-field-error ps-break", tag="p")


def _show_data(label: str, raw: bytes) -> None:
    with elements.element("div", "ps-stack"):
        elements.text(label, "ps-muted ps-small")
        # highlight_json escapes the data.
        ui.html(payloads.highlight_json(raw), sanitize=False)
