"""A connection of the driver's, which comes back when it is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from penstock.connector.database import Conninfo
from penstock.core.errors import DatabaseUnavailable
from penstock.db.retry import LOST
from penstock.db.sync import connect

_T = TypeVar("_T")

_PATIENCE_SECONDS = 30.0


class Line:
    """Asks the database, again where that does no harm; it connects when it is first asked."""

    def __init__(self, database: Conninfo) -> None:
        self._database = database
        self._conn: psycopg.Connection[Any] | None = None

    def ask(self, question: Callable[[psycopg.Connection[Any]], _T]) -> _T:
        """The answer to what may be asked twice; DatabaseUnavailable, if there is none for too long."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        pause = 0.05
        while True:
            try:
                if self._conn is None:
                    self._conn = connect(self._database.reveal(), "connector")
                    self._conn.execute("LISTEN penstock")
                return question(self._conn)
            except LOST as error:
                self.close()
                if time.monotonic() + pause > deadline:
                    raise DatabaseUnavailable(
                        f"given up after {_PATIENCE_SECONDS:g} s without a database: {str(error).strip()}; check that "
                        "PostgreSQL runs and that the driver and the executors of Spark can reach it"
                    ) from None
            time.sleep(pause)
            pause = min(pause * 2, 1.0)

    def wait(self, seconds: float) -> None:
        """Until somebody has pushed something somewhere, or for so long."""

        def hear(conn: psycopg.Connection[Any]) -> None:
            for _ in conn.notifies(timeout=seconds, stop_after=1):
                pass

        self.ask(hear)

    def close(self) -> None:
        """Let go of it."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None
