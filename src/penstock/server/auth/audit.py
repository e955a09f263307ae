"""The audit log: what was done with an administrator's rights, to keys, and what was tried in vain.

What was done is written before it is answered. What failed can be caused by anybody, as often as he likes, so only so
much of it is written, and how much was not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime

import psycopg

from penstock.core.errors import DatabaseError
from penstock.db.pool import Connection, Database
from penstock.db.retry import patiently
from penstock.db.statements import Statements

logger = logging.getLogger("penstock.server.audit")

_sql = Statements("penstock.server.auth", "audit.sql")
_PATIENCE_SECONDS = 3.0
_LONGEST_TEXT = 300

_FAILURES_A_MINUTE = 60
_WRITE_SECONDS = 1.0
_FORGET_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the audit log."""

    who: str
    action: str
    subject: str = ""
    address: str = ""
    outcome: str = "done"
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """A line of the audit log, and when it was written."""

    at: datetime
    who: str
    action: str
    subject: str
    address: str
    outcome: str
    request_id: str


class Audit:
    """The audit log of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._failures: list[Entry] = []
        self._minute = 0.0
        self._left_in_minute = _FAILURES_A_MINUTE
        self._unwritten = 0

    async def write(self, entries: Sequence[Entry]) -> None:
        """Write lines."""
        columns = zip(*(map(_storable, astuple(entry)) for entry in entries), strict=True)
        names = ("who", "action", "subject", "address", "outcome", "request_id")
        values = dict(zip(names, map(list, columns), strict=True))

        async def insert(conn: Connection) -> None:
            await conn.execute(_sql["write"].encode(), values)

        await patiently(self._database.pool, _PATIENCE_SECONDS, insert)

    async def write_done(self, entry: Entry) -> None:
        """Write a line about what is done already; that it could not be written is logged."""
        try:
            await self.write([entry])
        except (DatabaseError, psycopg.Error):
            # It is done, and saying otherwise would have it done again.
            extra = {"entry": entry.action, "who": entry.who, "subject": entry.subject}
            logger.exception("an action of an administrator could not be written down", extra=extra)

    async def read(self, limit: int, who: str | None = None) -> list[Written]:
        """The last lines, the latest first."""

        async def ask(conn: Connection) -> list[Written]:
            cursor = await conn.execute(_sql["read"].encode(), {"limit": limit, "who": who})
            return [Written(*row) for row in await cursor.fetchall()]

        return await patiently(self._database.pool, _PATIENCE_SECONDS, ask)

    def note_failure(self, entry: Entry) -> None:
        """Have what was tried in vain written soon, as long as there is not too much of it."""
        now = time.monotonic()
        if now - self._minute >= 60:
            self._minute, self._left_in_minute = now, _FAILURES_A_MINUTE
        if self._left_in_minute:
            self._left_in_minute -= 1
            self._failures.append(entry)
        else:
            self._unwritten += 1

    async def keep_writing(self, days: int) -> None:
        """Write what failed, and forget what is old, until cancelled."""
        forgotten = 0.0
        try:
            while True:
                await asyncio.sleep(_WRITE_SECONDS)
                with contextlib.suppress(DatabaseError, psycopg.Error):
                    await self.flush()
                    if not forgotten or time.monotonic() - forgotten >= _FORGET_SECONDS:
                        forgotten = time.monotonic()
                        await self._forget(days)
        finally:
            with contextlib.suppress(DatabaseError, psycopg.Error):
                await self.flush()

    async def flush(self) -> None:
        """Write what failed and is not written yet."""
        entries, self._failures = self._failures, []
        if self._unwritten:
            outcome = f"{self._unwritten} more failed attempts are not listed"
            entries.append(Entry("", "authenticate", outcome=outcome))
            self._unwritten = 0
        if entries:
            await self.write(entries)

    async def _forget(self, days: int) -> None:
        async def delete(conn: Connection) -> None:
            await conn.execute(_sql["forget"].encode(), {"days": days})

        await patiently(self._database.pool, _PATIENCE_SECONDS, delete)


def _storable(text: str) -> str:
    """A text of a caller's as it can be stored, and read without harm."""
    text = text[:_LONGEST_TEXT]
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)
