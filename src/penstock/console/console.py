"""What the console's process has at hand: one of each, made when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.console.auth.sessions import COOKIE, Session, Sessions
from penstock.console.data.vitals import Vitals
from penstock.console.polling import Feeds
from penstock.console.settings import ConsoleSettings
from penstock.db.adhoc_query import AdhocQueries
from penstock.db.pool import Database
from penstock.db.readonly_login import ReadOnlyLogin
from penstock.log.log import Log
from penstock.server.auth.authenticate import Authenticator
from penstock.server.auth.identity import UNRESTRICTED, Identity
from penstock.server.metrics.database import DatabaseMetrics


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks: what he may do, and his session where he had to sign in."""

    identity: Identity
    session: Session | None = None


class Console:
    """Shared by all pages of all browsers."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.database = Database(settings.server.core)
        self.log = Log(self.database)
        #: What the database knows of queues, groups and queries, read once for all who ask.
        self.database_metrics = DatabaseMetrics(self.database, fresh_seconds=0.5)
        self.vitals = Vitals(self.database, self.database_metrics)
        #: What is looked up again and again while somebody looks.
        self.feeds = Feeds()
        #: Knows keys; None where access is off.
        self.authenticator = (
            Authenticator(settings.server, self.database) if settings.server.has_access_control else None
        )
        self.sessions = Sessions(settings.secret)
        #: Answers statements that people type, over a login that may only look.
        self.adhoc_queries = AdhocQueries(ReadOnlyLogin(self.database))

    async def viewer(self, cookies: Mapping[str, str]) -> Viewer | None:
        """Who sends these cookies; None if he has to sign in first."""
        if self.authenticator is None:
            return Viewer(UNRESTRICTED)
        session = self.sessions.read(cookies.get(COOKIE, ""))
        return None if session is None else await self.still(session)

    async def still(self, session: Session) -> Viewer | None:
        """Who has this session, if his key is still good."""
        if self.authenticator is None or self.sessions.is_over(session):
            return None
        found = await self.authenticator.find_key(session.key_id)
        if found is None or not self.sessions.holds(session, found.hashes):
            return None
        return Viewer(found.identity, session)
