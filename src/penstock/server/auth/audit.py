"""The audit log: actions of administrators, changes to keys, and refused attempts.

An action is written before it is answered. Anybody can cause failures, as many as they like, so the number of failures
written per minute is limited, and the number left out is written instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

import psycopg
from psycopg.rows import class_row

from penstock.core.errors import DatabaseError
from penstock.db.pool import Connection, Database
from penstock.db.retry import run_with_retry
from penstock.db.statements import Statements

logger = logging.getLogger("penstock.server.audit")

_sql = Statements("penstock.server.auth", "audit.sql")
_RETRY_SECONDS = 3.0
_MAX_TEXT = 300

_FAILURES_PER_MINUTE = 60
_FLUSH_SECONDS = 1.0
_CLEANUP_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry to write."""

    who: str
    action: str
    subject: str = ""
    address: str = ""
    outcome: str = "done"
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """An entry that was written."""

    at: datetime
    who: str
    action: str
    subject: str
    address: str
    outcome: str
    request_id: str


class AuditLog:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._failures: list[AuditEntry] = []
        self._minute_start = 0.0
        self._left_in_minute = _FAILURES_PER_MINUTE
        self._left_out = 0

    async def write(self, entries: Sequence[AuditEntry]) -> None:
        columns = {
            column.name: [_sanitize(getattr(entry, column.name)) for entry in entries] for column in fields(AuditEntry)
        }
        await self._execute("write", columns)

    async def write_or_log(self, entry: AuditEntry) -> None:
        """Write an entry about a completed action; if that fails, log it."""
        try:
            await self.write([entry])
        except (DatabaseError, psycopg.Error):
            # The action is complete: an error response would make the caller repeat it.
            extra = {"entry": entry.action, "who": entry.who, "subject": entry.subject}
            logger.exception("could not write an audit entry", extra=extra)

    async def read(self, limit: int, who: str | None = None) -> list[AuditRecord]:
        """Return the last entries, the newest first."""

        async def select(conn: Connection) -> list[AuditRecord]:
            cursor = conn.cursor(row_factory=class_row(AuditRecord))
            return await (await cursor.execute(_sql["read"].encode(), {"limit": limit, "who": who})).fetchall()

        return await run_with_retry(self._database.pool, _RETRY_SECONDS, select)

    def record_failure(self, entry: AuditEntry) -> None:
        """Queue a refused attempt for the next flush, unless this minute had too many."""
        now = time.monotonic()
        if now - self._minute_start >= 60:
            self._minute_start, self._left_in_minute = now, _FAILURES_PER_MINUTE
        if self._left_in_minute:
            self._left_in_minute -= 1
            self._failures.append(entry)
        else:
            self._left_out += 1

    async def run(self, retention_days: int) -> None:
        """Write queued failures and delete expired entries until cancelled."""
        cleaned_at = 0.0
        try:
            while True:
                await asyncio.sleep(_FLUSH_SECONDS)
                with contextlib.suppress(DatabaseError, psycopg.Error):
                    await self.flush()
                    if not cleaned_at or time.monotonic() - cleaned_at >= _CLEANUP_SECONDS:
                        cleaned_at = time.monotonic()
                        await self._execute("delete_expired", {"days": retention_days})
        finally:
            with contextlib.suppress(DatabaseError, psycopg.Error):
                await self.flush()

    async def flush(self) -> None:
        """Write the queued failures."""
        entries, self._failures = self._failures, []
        if self._left_out:
            outcome = f"{self._left_out} more failed attempts are not listed"
            entries.append(AuditEntry("", "authenticate", outcome=outcome))
            self._left_out = 0
        if entries:
            await self.write(entries)

    async def _execute(self, name: str, params: Mapping[str, object]) -> None:
        statement = _sql[name].encode()
        await run_with_retry(self._database.pool, _RETRY_SECONDS, lambda conn: conn.execute(statement, params))


def _sanitize(text: str) -> str:
    """Shorten a text that a caller sent, and replace characters that cannot be stored or printed."""
    text = text[:_MAX_TEXT]
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)
