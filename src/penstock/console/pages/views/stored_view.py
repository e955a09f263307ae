"""The statement of a view that was created in the console, its state before it has run, and its deletion."""

from __future__ import annotations

from nicegui import ui

from penstock.console.data.views import find_view
from penstock.console.page import View, url_for
from penstock.console.widgets import elements, forms
from penstock.engine.query_registry import Registry
from penstock.engine.stored.stored_statements import StoredStatement, drop_stored_view, find_stored_statement
from penstock.server.auth.identity import Role

COMMAND = "penstock sql --stored"


class StoredViewCard:
    """The statement, its state, and the button that deletes the view."""

    def __init__(self, view: View, stored: StoredStatement) -> None:
        self._view = view
        self._name = stored.name
        by = f" by {stored.author}" if stored.author else ""
        with elements.card("Statement", hint=f"created {view.times.full(stored.created_at)}{by}"):
            self._error = elements.text("", "ps-error ps-break", tag="p")
            self._error.props["role"] = "alert"
            self._state = elements.text("", "ps-break", tag="p")
            self._command = elements.command_line(COMMAND)
            elements.text(stored.statement, "ps-code-block", tag="pre").props["tabindex"] = "0"
            with elements.element("div", "ps-row ps-end"):
                reason = view.missing_permission(Role.ADMIN)
                elements.button("Delete", self._delete, icon="delete", tone="danger", disabled_reason=reason)

    async def poll(self, *, waits: bool) -> None:
        """Keep the state up to date. ``waits`` is True until the view has run; then its own page is opened."""

        async def read() -> tuple[StoredStatement | None, bool]:
            return await find_stored_statement(self._view.database, self._name), (
                waits and await find_view(self._view.log, self._name) is not None
            )

        def show(read: tuple[StoredStatement | None, bool]) -> None:
            stored, has_run = read
            if stored is None:
                ui.navigate.to("/views")
            elif has_run:
                ui.navigate.to(url_for("/views", view=self._name))
            else:
                self._show(stored, waits)

        await self._view.poll(("stored view", self._name, waits), read, show)

    def _show(self, stored: StoredStatement, waits: bool) -> None:
        state = _state(stored, waits)
        self._state.set_text(state)
        self._state.set_visibility(bool(state))
        self._command.set_visibility(not stored.is_followed)
        self._error.set_text(stored.error or "")
        self._error.set_visibility(bool(stored.error))

    async def _delete(self) -> None:
        view, name = self._view, self._name
        # The page owns the dialog, so that the action can continue when it closes.
        with view.client.content:
            if not await elements.confirm(
                f"Delete the view {name}?", "Its rows, its state and its statement are deleted.", "Delete"
            ):
                return
            async with view.action("delete a view", Role.ADMIN, subject=name):
                await Registry(view.log).check_not_read(name)
                await drop_stored_view(view.database, name)


async def build_waiting(view: View, stored: StoredStatement) -> None:
    """Create the page of a view that has not run yet."""
    forms.breadcrumb(("Views", "/views"), current=stored.name)
    await StoredViewCard(view, stored).poll(waits=True)


def _state(stored: StoredStatement, waits: bool) -> str:
    if not stored.is_followed:
        reason = "The view waits to be deleted" if stored.is_dropped else "The view is created"
        return f"{reason}, but no process runs stored views now. Start one where your queries run:"
    if stored.is_dropped:
        return "The view is being deleted."
    if stored.error:
        return "It is tried again within a minute."
    return "The view is starting. Its page opens when it has run." if waits else ""
