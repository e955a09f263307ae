"""Keys and tokens for tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import jwt
import psycopg

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.server.auth.api_keys import Keys
from penstock.server.auth.audit import Audit, Written
from penstock.server.http.endpoint import Role

_Answer = TypeVar("_Answer")


def with_keys(database_url: str, act: Callable[[Keys], Awaitable[_Answer]]) -> _Answer:
    async def run() -> _Answer:
        async with Database(Settings(database_url)) as database:
            return await act(Keys(database))

    return asyncio.run(run())


def make_key(database_url: str, *roles: Role, queues: Sequence[str] = ("*",)) -> str:
    async def create(keys: Keys) -> str:
        _, text = await keys.create("test", roles, queues)
        return str(text)

    return with_keys(database_url, create)


def read_audit(database_url: str) -> list[Written]:
    async def run() -> list[Written]:
        async with Database(Settings(database_url)) as database:
            return await Audit(database).read(1000)

    return asyncio.run(run())


@contextmanager
def no_audit(database_url: str) -> Iterator[None]:
    """A database whose audit log takes no lines."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("ALTER TABLE penstock.audit ADD CONSTRAINT takes_none CHECK (false) NOT VALID")
        try:
            yield
        finally:
            conn.execute("ALTER TABLE penstock.audit DROP CONSTRAINT takes_none")


def token(key: Any, algorithm: str, headers: dict[str, Any] | None = None, **claims: Any) -> str:
    return jwt.encode({"exp": time.time() + 600, "sub": "ada", **claims}, key, algorithm, headers)


def bearer(credential: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {credential}"}
