"""Dead letters grouped by kind of error, the list of one kind, and the dialog that edits them with a mapping."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence

from nicegui import ui

from penstock.console.formatting import TimeFormatter
from penstock.console.page import Page, View, error_message, url_for
from penstock.console.pages import dead_letter
from penstock.console.polling import EXPECTED_ERRORS
from penstock.console.widgets import elements, forms, payloads
from penstock.console.widgets.editor import code_editor
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn, key_cell, number_column
from penstock.core import formatting
from penstock.core.errors import NotFound
from penstock.log.dead_letters.dead_letter import DeadLetter, DeadLetterEdit, DeadLetterFilter, DeadLetterKind, Edit
from penstock.log.dead_letters.dead_letter_store import KIND_SAMPLE
from penstock.server.auth.identity import Role
from penstock.stream.sql.json_mapping import compile_mapping

PATH = "/dead-letters"
_PAGE_SIZE = 50
#: Dead letters redriven in one transaction.
_REDRIVE_BATCH = 500
#: Dead letters that a preview maps, and those whose data it shows.
_PREVIEW_LETTERS = 200
_SHOWN_LETTERS = 3
_PREVIEW_BYTES = 4 << 20

_NOT_FOUND = ("No such dead letters", "They were redriven or purged, or the queue was deleted.")


async def build(view: View) -> None:
    if "id" in view.params:
        await dead_letter.build(view, forms.parse_int(view.params, "id"))
    elif "kind" in view.params:
        await _build_kind(view)
    else:
        await _build_kinds(view)


async def _build_kinds(view: View) -> None:
    queue_filter = view.params.get("queue", "")
    queues = [queue.name for queue in await view.log.queues() if view.can_see(queue.name)]
    if len(queues) > 1:
        with forms.filter_form(PATH, "Filter by queue", {}):
            forms.select_field("queue", "Queue", {"": "All queues", **{name: name for name in queues}}, queue_filter)
            forms.submit_button("Show")
    _show_redriven(view)
    with elements.tiles():
        count = elements.tile("Dead letters")
        kinds_tile = elements.tile("Kinds of error")
        last = elements.tile("Last failure")
    times = view.times
    columns: list[TableColumn[DeadLetterKind]] = [
        TableColumn("Error", _kind_cell),
        TableColumn("Queue", lambda kind: key_cell(kind.queue, url_for("/queues", queue=kind.queue))),
        TableColumn("Group", lambda kind: kind.group or "–", classes="ps-desktop"),
        TableColumn("Stage", lambda kind: kind.stage, classes="ps-desktop"),
        number_column("Count", lambda kind: formatting.number(kind.count)),
        number_column("First", lambda kind: times.ago(kind.first_failed_at), classes="ps-desktop"),
        number_column("Last", lambda kind: times.ago(kind.failed_at)),
    ]
    with elements.card("By kind of error", hint="latest failure first") as card:
        table = DataTable("Dead letters by kind of error", columns)
    sample_note = elements.text(
        f"Counts cover the newest {formatting.number(KIND_SAMPLE)} dead letters of each queue.", "ps-muted ps-small"
    )
    empty = elements.empty_state(
        "No dead letters",
        "Events that fail too often, or cannot be decoded, are stored here until they are redriven or purged.",
        icon="task_alt",
    )

    async def read() -> list[DeadLetterKind]:
        try:
            return await view.log.dead_letter_kinds(queue_filter or None)
        except NotFound:
            return []

    def show(kinds: list[DeadLetterKind]) -> None:
        visible = [kind for kind in kinds if view.can_see(kind.queue)]
        card.set_visibility(bool(visible))
        empty.set_visibility(not visible)
        sample_note.set_visibility(any(not kind.is_whole for kind in visible))
        total = sum(kind.count for kind in visible)
        count.set(formatting.compact(total), tone="bad" if total else "good")
        kinds_tile.set(formatting.number(len(visible)))
        newest = max((kind.failed_at for kind in visible), default=None)
        last.set(times.clock(newest), times.ago(newest) if newest is not None else "")
        table.set(visible)

    await view.poll(("dead letters", queue_filter), read, show, seconds=2.0)


def _show_redriven(view: View) -> None:
    """Show what a redrive did, which opened this page."""
    redriven, failed = (forms.parse_int(view.params, name) for name in ("redriven", "failed"))
    if not redriven and not failed:
        return
    queue, group = view.params.get("queue", ""), view.params.get("group", "")
    with elements.element("div", "ps-row ps-card", role="status"):
        if redriven:
            elements.badge(f"{formatting.counted(redriven, 'dead letter')} redriven", "good")
            if group:
                elements.text(f"to the group {group}, which reads them again. Those that fail come back here.")
                elements.link("Show the group", url_for("/queues", queue=queue, group=group))
            else:
                elements.text(f"as events of {queue}.")
        if failed:
            elements.badge(f"{formatting.counted(failed, 'dead letter')} not redriven", "bad")
            elements.text(view.params.get("problem", ""), "ps-break")


def _kind_cell(kind: DeadLetterKind) -> TableCell:
    href = url_for(PATH, queue=kind.queue, group=kind.group or None, stage=kind.stage, kind=kind.kind)
    return TableCell(kind.kind or "no error message", href=href, classes="ps-strong ps-long-text")


async def _build_kind(view: View) -> None:
    queue, kind = view.params.get("queue", ""), view.params["kind"]
    group, stage = view.params.get("group"), view.params.get("stage", "")
    selection = DeadLetterFilter(queue=queue or None, group=group or None, kind=kind, stage=stage)
    forms.breadcrumb(("Dead letters", PATH), current=kind or "no error message")
    if not queue or not view.can_see(queue):
        elements.empty_state(*_NOT_FOUND)
        return
    page = forms.parse_int(view.params, "page")
    try:
        letters = await view.log.dead_letters(selection, limit=_PAGE_SIZE + 1, offset=page * _PAGE_SIZE)
    except NotFound:
        letters = []
    if not letters:
        elements.empty_state(*_NOT_FOUND, icon="task_alt")
        return
    total = await view.log.count_dead_letters(selection)
    with elements.element("div", "ps-row ps-between"):
        with elements.element("div", "ps-row"):
            elements.badge(queue, "info")
            if group:
                elements.badge(f"group {group}", "idle")
            elements.badge(f"stage {stage}", "idle")
        buttons = _Buttons(view, queue, selection, total)
    with elements.card(formatting.counted(total, "dead letter"), hint="latest failure first"):
        table = DataTable("Dead letters", _letter_columns(view.times), row_id=lambda letter: letter.id)
        table.set(letters[:_PAGE_SIZE])
        table.on_select(buttons.select)
    params = {"queue": queue, "group": group, "stage": stage, "kind": kind}
    forms.pager(PATH, params, page, len(letters) > _PAGE_SIZE, "the dead letters")


def _letter_columns(times: TimeFormatter) -> list[TableColumn[DeadLetter]]:
    def error(letter: DeadLetter) -> TableCell:
        return TableCell(letter.error.partition("\n")[0][:200], classes="ps-long-text")

    def data(letter: DeadLetter) -> TableCell:
        return TableCell(payloads.preview(letter.raw), classes="ps-mono ps-muted ps-ellipsis")

    return [
        number_column(
            "Number",
            lambda letter: TableCell(f"#{letter.id}", href=url_for(PATH, id=letter.id), classes="ps-strong"),
        ),
        TableColumn("Key", lambda letter: "–" if letter.key is None else key_cell(letter.key)),
        TableColumn("Error", error),
        TableColumn("Data", data, classes="ps-desktop"),
        number_column("Attempts", lambda letter: formatting.number(letter.attempts), classes="ps-desktop"),
        number_column("Failed", lambda letter: times.ago(letter.failed_at)),
    ]


class _Buttons:
    """Redrive or purge the dead letters of a kind, or those of them that are ticked."""

    def __init__(self, view: View, queue: str, kind: DeadLetterFilter, total: int) -> None:
        self._view = view
        self._queue = queue
        self._kind = kind
        self._total = total
        self._selected: list[int] = []
        reason = view.missing_permission(Role.ADMIN, queue=queue)
        with elements.element("div", "ps-row"):
            no_event = "" if kind.group else "These were not stored as events: edit them before the redrive"
            self._edit_button = elements.button("", self._edit, icon="edit", disabled_reason=reason)
            self._redrive_button = elements.button(
                "", self._redrive, icon="replay", tone="primary", disabled_reason=reason or no_event
            )
            self._purge_button = elements.button("", self._purge, icon="delete", tone="danger", disabled_reason=reason)
        self.select([])

    def select(self, ids: Sequence[int]) -> None:
        """Apply the buttons to these dead letters of the kind; to all without any."""
        self._selected = list(ids)
        number = formatting.number(len(ids))
        self._edit_button.set_text(f"Edit and redrive {number}" if ids else "Edit and redrive")
        self._redrive_button.set_text(f"Redrive {number}" if ids else "Redrive all")
        self._purge_button.set_text(f"Purge {number}" if ids else "Purge all")

    @property
    def _selection(self) -> DeadLetterFilter:
        # The ids come from the browser, so the conditions of the kind, and with them the queue, stay.
        return dataclasses.replace(self._kind, ids=self._selected) if self._selected else self._kind

    @property
    def _count(self) -> int:
        return len(self._selected) or self._total

    async def _redrive_with(self, edit: Edit | None, selection: DeadLetterFilter) -> None:
        view, queue = self._view, self._queue
        action = "redrive dead letters" if edit is None else "edit and redrive dead letters"
        redriven, problem = 0, ""
        async with view.action(action, Role.ADMIN, subject=queue, queue=queue):
            ids = await view.log.dead_letter_ids(selection)
            for start in range(0, len(ids), _REDRIVE_BATCH):
                batch = DeadLetterFilter(ids=ids[start : start + _REDRIVE_BATCH])
                done = await view.log.redrive(batch, limit=_REDRIVE_BATCH, edit=edit)
                redriven += done.replayed
                problem = problem or next(iter(done.problems.values()), "")
            dead_letter.open_redriven(queue, selection.group, redriven, len(ids) - redriven, problem)

    async def _redrive(self) -> None:
        selection = self._selection
        question = f"Redrive {formatting.counted(self._count, 'dead letter')} unchanged?"
        detail = (
            f"The group {selection.group} gets the same events again. They will fail again unless you have fixed the "
            "cause. To change their data first, use Edit and redrive."
        )
        if await elements.confirm(question, detail, self._redrive_button.text, danger=False):
            await self._redrive_with(None, selection)

    async def _edit(self) -> None:
        selection = self._selection
        # The page owns the dialog, so that the action can continue when it closes.
        with self._view.client.content:
            await _edit_and_redrive(
                self._view, selection, self._count, lambda edit: self._redrive_with(edit, selection)
            )

    async def _purge(self) -> None:
        view, selection = self._view, self._selection
        question = f"Purge {formatting.counted(self._count, 'dead letter')}?"
        detail = "This deletes their events and cannot be undone."
        if not await elements.confirm(question, detail, self._purge_button.text):
            return
        async with view.action("purge dead letters", Role.ADMIN, subject=self._queue, queue=self._queue):
            await view.log.purge(selection)
            ui.navigate.to(PATH)


async def _edit_and_redrive(
    view: View, selection: DeadLetterFilter, total: int, redrive: Callable[[Edit], Awaitable[None]]
) -> None:
    """Ask for a mapping, show what it changes, and call ``redrive`` with it."""
    detail = (
        "A mapping is a list of fields in SQL, such as: * EXCEPT (prise), cast(prise AS decimal) AS price. It is "
        "applied to each event. The history of a dead letter keeps its old data."
    )
    with elements.dialog(f"Edit and redrive {formatting.counted(total, 'dead letter')}", detail) as dialog:
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
            send_button = elements.button(f"Redrive {formatting.number(total)}", send, icon="replay", tone="primary")
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


PAGE = Page(PATH, "Dead letters", "report", build, short="Dead")
