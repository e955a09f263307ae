"""A synchronous connection that reconnects when it is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from penstock.connector.database import Conninfo
from penstock.db.retry import CONNECTION_ERRORS, DatabaseRetry
from penstock.db.sync import connect

_T = TypeVar("_T")

_RETRY_SECONDS = 30.0


class RetryingConnection:
    """Runs idempotent operations, and runs them again if the connection is lost. It connects on first use."""

    def __init__(self, database: Conninfo) -> None:
        self._database = database
        self._conn: psycopg.Connection[Any] | None = None

    def run(self, operation: Callable[[psycopg.Connection[Any]], _T]) -> _T:
        """Run an operation. Raises DatabaseUnavailable if the database cannot be reached for too long."""
        retry = DatabaseRetry(_RETRY_SECONDS)
        while True:
            try:
                if self._conn is None:
                    self._conn = connect(self._database.reveal(), "connector")
                    self._conn.execute("LISTEN penstock")
                return operation(self._conn)
            except CONNECTION_ERRORS as error:
                self.close()
                time.sleep(retry.next_pause(error))

    def wait_for_push(self, seconds: float) -> None:
        """Wait until events are pushed to any queue, for at most ``seconds``."""

        def wait(conn: psycopg.Connection[Any]) -> None:
            for _ in conn.notifies(timeout=seconds, stop_after=1):
                pass

        self.run(wait)

    def close(self) -> None:
        """Close the connection. The next operation opens a new one."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None
