"""The rules of a database: stored, listed, forgotten, and what fires. What they decide is in ``stream.rules``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from penstock.db.statements import Statements
from penstock.stream.rules import Rule

if TYPE_CHECKING:
    from penstock.log.log import Log

_sql = Statements("penstock.engine", "rulebook.sql")


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """A rule that is stored, and for how many keys it fires."""

    rule: Rule
    firing: int


class Rules:
    """The rules of a database."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def save(self, rule: Rule) -> None:
        """Store a rule, and make its queue of alerts if that is not there; one that was changed begins anew."""
        params = {
            "name": rule.name,
            "queue": rule.queue,
            "alerts": rule.alerts,
            "definition": msgspec.json.encode(rule).decode(),
        }
        if await self._log.catalog.find(rule.alerts) is None:
            await self._log.configure(rule.alerts, partitioning="hash", partitions=1)
        async with self._log.database.connection() as conn, conn.transaction():
            row = await (await conn.execute(_sql["save"], params)).fetchone()
            if row is not None and row[0]:
                await conn.execute(_sql["start_over"], params)

    async def all(self) -> list[RuleInfo]:
        """All of them, by name."""
        async with self._log.database.connection() as conn:
            rows = await (await conn.execute(_sql["list"])).fetchall()
        return [RuleInfo(msgspec.convert(definition, Rule), firing) for definition, firing in rows]

    async def delete(self, name: str) -> bool:
        """Forget a rule, and that it fires; False if there is none of that name."""
        async with self._log.database.connection() as conn:
            return (await conn.execute(_sql["delete"], {"name": name})).rowcount > 0

    async def firing(self) -> list[tuple[str, str, datetime]]:
        """What fires now: the rule, the key, and since when."""
        async with self._log.database.connection() as conn:
            rows: list[tuple[str, str, datetime]] = await (await conn.execute(_sql["firing"])).fetchall()
        return rows

    async def find(self, name: str) -> Rule | None:
        """The rule of this name."""
        async with self._log.database.connection() as conn:
            row = await (await conn.execute(_sql["find"], {"name": name})).fetchone()
        return None if row is None else msgspec.convert(row[0], Rule)
