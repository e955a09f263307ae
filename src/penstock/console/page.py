"""What a page is, and what it is given.

A page is a module of ``penstock.console.pages`` with a ``PAGE`` and a line in ``penstock.console.registry``. Its
``build`` is called once for each browser that opens it; what moves after that comes from :meth:`View.follow`::

    async def build(view: View) -> None:
        depth = parts.tile("Depth")

        def show(queues: list[Queue]) -> None:
            depth.set(words.number(sum(queue.depth for queue in queues)))

        await view.follow("queues", lambda: read_queues(view.database), show)

    PAGE = Page("/queues", "Queues", "inbox", build)

``read`` runs once a second for all browsers together, whoever they are: what it gives is the same for all who follow
the same key, and ``show`` leaves out what :meth:`View.sees` says its viewer must not know. Buttons do what they do
inside :meth:`View.acting`, which asks who presses.
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
from penstock.console.console import Console, Viewer
from penstock.console.formatting import Times
from penstock.console.polling import TROUBLES, Follower
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.server.auth.audit import AuditEntry
from penstock.server.auth.authorize import client_address
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem, to_problem

logger = logging.getLogger("penstock.console")

T = TypeVar("T")

#: So often a page makes sure that whoever looks at it still may.
_STILL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the console, and its place in the navigation.

    Attributes:
        path: Where it is; what it shows in detail is in the query string, as names may hold anything.
        icon: The name of a Material icon.
        build: Makes the page's elements for one browser.
        needs_all: Not for keys that are limited to some queues.
        short: Its title where there is little room.
    """

    path: str
    title: str
    icon: str
    build: Callable[[View], Awaitable[None]]
    needs_all: bool = False
    short: str = ""


class View:
    """A page as one browser has it open."""

    def __init__(self, console: Console, viewer: Viewer, request: Request, client: Client) -> None:
        self.console = console
        self.viewer = viewer
        self.client = client
        #: The query string.
        self.params = dict(request.query_params)
        self.times = Times(unquote(request.cookies.get("penstock_zone", "UTC")))
        self._address = client_address(request)
        self._request_id: str = request.scope["state"].get("request_id", "")
        self._followers: list[Follower[Any]] = []
        self._is_connected = self._is_hidden = False
        #: Set by the shell: says that the database does not answer, or that it does again.
        self.troubled: Callable[[Exception | None], None] = lambda _: None
        client.on_connect(lambda: self._look(connected=True))
        client.on_disconnect(lambda: self._look(connected=False))
        client.on_delete(self._close)

    @property
    def log(self) -> Log:
        """The queues."""
        return self.console.log

    @property
    def database(self) -> Database:
        """The database, for statements of a page's own."""
        return self.console.database

    def sees(self, queue: str) -> bool:
        """Whether the viewer may know of a queue."""
        return self.viewer.identity.can_access(queue)

    @property
    def sees_all(self) -> bool:
        """Whether he is limited to no queues, and so may see what is not about one."""
        return not self.viewer.identity.is_limited

    def may(self, *roles: Role, queue: str | None = None) -> bool:
        """Whether he may do what needs one of these roles: buttons that he cannot press are not enabled."""
        identity = self.viewer.identity
        if not identity.has_role(frozenset(roles)):
            return False
        return identity.can_access(queue) if queue is not None else not identity.is_limited

    async def follow(
        self,
        key: Hashable,
        read: Callable[[], Awaitable[T]],
        show: Callable[[T], object],
        *,
        seconds: float = 1.0,
    ) -> Follower[T]:
        """Show what ``read`` finds, now and every second while somebody looks.

        ``key`` says what is read: all pages that follow the same one share the look, and with it ``read``. The
        follower can be closed, for example to follow something else.
        """

        def hear(value: T) -> None:
            with self.client.content:
                show(value)
            self.troubled(None)

        feed = self.console.feeds.feed(key, read, seconds)
        follower = feed.join(hear, self.troubled)
        self._followers = [*(each for each in self._followers if not each.is_closed), follower]
        try:
            follower.hear(await feed.now())
        except TROUBLES as error:
            self.troubled(error)
        follower.look(self._is_connected and not self._is_hidden)
        return follower

    @asynccontextmanager
    async def acting(
        self, action: str, *roles: Role, subject: str = "", queue: str | None = None, done: str = ""
    ) -> AsyncIterator[None]:
        """Around what a button does: asks whether its viewer may, writes it down, says what came of it.

        ``action`` is the line in the audit log, and ``done`` what is said when it is done. An error of ours ends the
        block and is shown, so that what stands after it must not depend on its success.
        """
        try:
            await self._permit(roles, queue)
            yield
        except (Problem, *TROUBLES) as error:
            ui.notify(sentence(error), type="negative", position="bottom", close_button="Close", timeout=10_000)
            return
        guard = self.console.authenticator
        if guard is not None and frozenset(roles) == {Role.ADMIN}:
            who = self.viewer.identity.id
            try:
                await guard.audit.write([AuditEntry(who, action, subject, self._address, "200", self._request_id)])
            except TROUBLES:
                logger.exception("an action of an administrator could not be written down", extra={"entry": action})
        if done:
            ui.notify(done, type="positive", position="bottom")

    async def _permit(self, roles: tuple[Role, ...], queue: str | None) -> None:
        if not await self.check():
            raise Problem("unauthenticated", "You are signed out: sign in again")
        if not self.may(*roles, queue=queue):
            needed = " or ".join(sorted(role.value for role in roles))
            about = "" if queue is None else f" for the queue {queue}"
            raise Problem("forbidden", f"Your key may not do this: it needs the role {needed}{about}")

    async def check(self) -> bool:
        """Whether the viewer is still who he was; if not, he is shown the door."""
        if self.viewer.session is None:
            return True
        viewer = await self.console.still(self.viewer.session)
        if viewer is None:
            self._close()
            self.client.open(SIGN_IN)
            return False
        self.viewer = viewer
        return True

    def keep_checking(self) -> None:
        """Look again and again whether the key was revoked."""
        if self.viewer.session is not None:
            ui.timer(_STILL_SECONDS, self._check_quietly, immediate=False)

    async def _check_quietly(self) -> None:
        try:
            await self.check()
        except TROUBLES as error:
            self.troubled(error)

    def hide(self, is_hidden: bool) -> None:
        """Nobody sees the tab, or somebody does again."""
        self._is_hidden = is_hidden
        self._look(connected=self._is_connected)

    def _look(self, *, connected: bool) -> None:
        self._is_connected = connected
        for follower in self._followers:
            follower.look(connected and not self._is_hidden)

    def _close(self) -> None:
        followers, self._followers = self._followers, []
        for follower in followers:
            follower.close()


def link(path: str, **params: str | int | None) -> str:
    """The address of a page that shows this: ``link("/queries", query="sales")``."""
    given = {name: value for name, value in params.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def sentence(error: Exception) -> str:
    """What may be told of an error, for a person."""
    detail = to_problem(error).detail
    return f"{detail[:1].upper()}{detail[1:]}"
