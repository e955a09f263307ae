"""The services of the console's process, which all pages share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.console.auth.sessions import COOKIE, SessionCookies, SignInSession
from penstock.console.data.overview_history import OverviewHistory
from penstock.console.data.statement_preview import StatementPreviews
from penstock.console.polling import Pollers
from penstock.console.settings import ConsoleSettings
from penstock.db.adhoc_query import AdhocQueries
from penstock.db.pool import Database
from penstock.db.readonly_login import ReadOnlyLogin
from penstock.log.log import Log
from penstock.server.auth.authenticate import Authenticator
from penstock.server.auth.identity import UNRESTRICTED, Identity
from penstock.server.metrics.database_metrics import DatabaseMetrics


@dataclass(frozen=True, slots=True)
class Viewer:
    """The user of a browser. There is no session if access control is off."""

    identity: Identity
    session: SignInSession | None = None


class ConsoleServices:
    """The database, the log, the pollers and the authentication of the console."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.database = Database(settings.server.core)
        self.log = Log(self.database)
        self.database_metrics = DatabaseMetrics(self.database, fresh_seconds=0.5)
        self.overview_history = OverviewHistory(self.database, self.database_metrics)
        self.pollers = Pollers()
        #: None if access control is off.
        self.authenticator = (
            Authenticator(settings.server, self.database) if settings.server.has_access_control else None
        )
        self.sessions = SessionCookies(settings.secret)
        #: Runs the statements of the SQL page as a role that can only read.
        self.adhoc_queries = AdhocQueries(ReadOnlyLogin(self.database))
        #: Runs the previews of views, which need Spark.
        self.previews = StatementPreviews(settings.server.core)

    async def find_viewer(self, cookies: Mapping[str, str]) -> Viewer | None:
        """Return the viewer that the cookies identify, or None if the browser has to sign in."""
        if self.authenticator is None:
            return Viewer(UNRESTRICTED)
        session = self.sessions.parse(cookies.get(COOKIE, ""))
        return None if session is None else await self.resume_session(session)

    async def resume_session(self, session: SignInSession) -> Viewer | None:
        """Return the viewer of a session, or None if the session ended or its key is no longer valid."""
        if self.authenticator is None or self.sessions.is_over(session):
            return None
        if session.identity is not None:
            return Viewer(session.identity, session)
        key = await self.authenticator.find_key(session.key_id)
        if key is None or not self.sessions.matches_key(session, key.hashes):
            return None
        return Viewer(key.identity, session)
