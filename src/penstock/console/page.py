"""Pages of the console, and the view through which a page reads data and runs actions.

A page is a module of ``penstock.console.pages`` with a ``PAGE`` that ``penstock.console.layout`` lists. Its ``build``
runs once for each browser that opens it. :meth:`View.poll` keeps it up to date::

    async def build(view: View) -> None:
        depth = elements.tile("Depth")

        def show(queues: list[Queue]) -> None:
            visible = [queue for queue in queues if view.can_see(queue.name)]
            depth.set(formatting.number(sum(queue.depth for queue in visible)))

        await view.poll("queues", lambda: read_queues(view.database), show)

    PAGE = Page("/queues", "Queues", "inbox", build)

All browsers that poll the same key share one ``read`` per second, whatever their permissions. ``show`` therefore drops
the queues that :meth:`View.can_see` denies. The handlers of buttons run inside :meth:`View.action`, which checks
permissions and writes the audit log.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote, urlencode

from nicegui import Client, ui
from starlette.requests import Request

from penstock.console.auth.middleware import SIGN_IN
from penstock.console.formatting import TimeFormatter
from penstock.console.polling import EXPECTED_ERRORS, PollSubscription
from penstock.console.services import ConsoleServices, Viewer
from penstock.server.auth.audit import AuditEntry
from penstock.server.auth.authorize import client_address
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem, to_problem

logger = logging.getLogger("penstock.console")

T = TypeVar("T")

#: Interval at which an open page checks that its session is still valid.
_SESSION_CHECK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the console, with its entry in the navigation.

    Attributes:
        path: The path of its URL. The query string selects details, since names may contain any character.
        icon: The name of a Material icon.
        build: Creates the elements of the page for one browser.
        needs_all: Denies the page to keys that are limited to some queues.
        short: The title for narrow screens.
    """

    path: str
    title: str
    icon: str
    build: Callable[[View], Awaitable[None]]
    needs_all: bool = False
    short: str = ""


class View:
    """A page that is open in one browser."""

    def __init__(self, console: ConsoleServices, viewer: Viewer, request: Request, client: Client) -> None:
        self.console = console
        self.log = console.log
        self.database = console.database
        self.viewer = viewer
        self.client = client
        #: The query string.
        self.params = dict(request.query_params)
        self.times = TimeFormatter(unquote(request.cookies.get("penstock_zone", "UTC")))
        self._address = client_address(request)
        self._request_id: str = request.scope["state"].get("request_id", "")
        self._subscriptions: set[PollSubscription[Any]] = set()
        self._is_connected = self._is_hidden = False
        #: Set by the layout: shows that a read failed, or with None that reads succeed again.
        self.report_error: Callable[[Exception | None], None] = lambda _: None
        client.on_connect(lambda: self._set_connected(True))
        client.on_disconnect(lambda: self._set_connected(False))
        client.on_delete(self._close)

    def can_see(self, queue: str) -> bool:
        """Return whether the viewer has access to a queue."""
        return self.viewer.identity.can_access(queue)

    @property
    def can_see_all(self) -> bool:
        """Whether the viewer has access to all queues."""
        return not self.viewer.identity.is_limited

    def missing_permission(self, role: Role, *, queue: str | None = None) -> str:
        """Return the permission that the viewer lacks to act in a role, or an empty string.

        ``queue`` is the queue that the viewer needs access to; all queues if None.
        """
        identity = self.viewer.identity
        if not identity.has_role(frozenset({role})):
            return f"Your key needs the role {role.value}"
        if queue is None:
            return "" if self.can_see_all else "Your key needs access to all queues"
        return "" if self.can_see(queue) else f"Your key needs access to the queue {queue}"

    async def poll(
        self,
        key: Hashable,
        read: Callable[[], Awaitable[T]],
        show: Callable[[T], object],
        *,
        seconds: float = 1.0,
    ) -> PollSubscription[T]:
        """Show the result of ``read`` now, and again every ``seconds`` while the page is visible.

        ``key`` identifies the result: all pages that poll the same key share the reads.
        """

        def deliver(value: T) -> None:
            with self.client.content:
                show(value)
            self.report_error(None)

        poller = self.console.pollers.get(key, read, seconds)
        subscription = poller.subscribe(deliver, self.report_error)
        self._subscriptions.add(subscription)
        try:
            subscription.deliver(await poller.latest())
        except EXPECTED_ERRORS as error:
            self.report_error(error)
        subscription.set_visible(self._is_connected and not self._is_hidden)
        return subscription

    def stop_polling(self, subscription: PollSubscription[Any]) -> None:
        self._subscriptions.discard(subscription)
        subscription.close()

    @asynccontextmanager
    async def action(
        self, name: str, role: Role, *, subject: str = "", queue: str | None = None, done: str = ""
    ) -> AsyncIterator[None]:
        """Run the block as an action of the viewer: check the role, write the audit log, and notify the user.

        An error of the database or of Penstock ends the block and is shown to the user. Statements after the block run
        even then.

        Args:
            name: The action in the audit log.
            role: The role that the viewer needs.
            subject: The object of the action in the audit log.
            queue: The queue that the viewer needs access to; all queues if None.
            done: The notification after success.
        """
        try:
            await self._check_permission(role, queue)
            yield
        except (Problem, *EXPECTED_ERRORS) as error:
            message = error_message(error)
            ui.notify(message, type="negative", position="bottom", close_button="Close", timeout=10_000)
            return
        authenticator = self.console.authenticator
        if authenticator is not None and role is Role.ADMIN:
            entry = AuditEntry(self.viewer.identity.id, name, subject, self._address, "200", self._request_id)
            try:
                await authenticator.audit.write([entry])
            except EXPECTED_ERRORS:
                logger.exception("could not write an entry of the audit log", extra={"entry": name})
        if done:
            ui.notify(done, type="positive", position="bottom")

    async def _check_permission(self, role: Role, queue: str | None) -> None:
        if not await self.check_session():
            raise Problem("unauthenticated", "You are signed out: sign in again")
        missing = self.missing_permission(role, queue=queue)
        if missing:
            raise Problem("forbidden", f"{missing}: sign in with one that has it")

    async def check_session(self) -> bool:
        """Reload the viewer's permissions. If the session is no longer valid, open the sign-in page."""
        if self.viewer.session is None:
            return True
        viewer = await self.console.resume_session(self.viewer.session)
        if viewer is None:
            self._close()
            self.client.open(SIGN_IN)
            return False
        self.viewer = viewer
        return True

    def start_session_checks(self) -> None:
        """Check the session at an interval, so that a revoked key closes its open pages."""
        if self.viewer.session is not None:
            ui.timer(_SESSION_CHECK_SECONDS, self._check_session_quietly, immediate=False)

    async def _check_session_quietly(self) -> None:
        try:
            await self.check_session()
        except EXPECTED_ERRORS as error:
            self.report_error(error)

    def set_hidden(self, is_hidden: bool) -> None:
        """Pause or resume polling when the tab goes to the background or comes back."""
        self._is_hidden = is_hidden
        self._update_visibility()

    def _set_connected(self, is_connected: bool) -> None:
        self._is_connected = is_connected
        self._update_visibility()

    def _update_visibility(self) -> None:
        for subscription in self._subscriptions:
            subscription.set_visible(self._is_connected and not self._is_hidden)

    def _close(self) -> None:
        for subscription in list(self._subscriptions):
            self.stop_polling(subscription)


def url_for(path: str, **params: str | int | None) -> str:
    """Return the URL of a page: ``url_for("/queries", query="sales")``. Parameters that are None are left out."""
    given = {name: value for name, value in params.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def error_message(error: Exception) -> str:
    """Return the message of an error for the user, without internal details."""
    detail = to_problem(error).detail
    return f"{detail[:1].upper()}{detail[1:]}"
