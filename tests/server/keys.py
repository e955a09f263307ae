"""API keys, tokens and the audit log of a test database."""

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
from penstock.server.auth.api_keys import ApiKeyStore
from penstock.server.auth.audit import AuditLog, AuditRecord
from penstock.server.auth.identity import Role

_ResultT = TypeVar("_ResultT")


def use_key_store(database_url: str, act: Callable[[ApiKeyStore], Awaitable[_ResultT]]) -> _ResultT:
    async def run() -> _ResultT:
        async with Database(Settings(database_url)) as database:
            return await act(ApiKeyStore(database))

    return asyncio.run(run())


def create_key(database_url: str, *roles: Role, queues: Sequence[str] = ("*",)) -> str:
    async def create(keys: ApiKeyStore) -> str:
        _, text = await keys.create("test", roles, queues)
        return str(text)

    return use_key_store(database_url, create)


def read_audit(database_url: str) -> list[AuditRecord]:
    async def run() -> list[AuditRecord]:
        async with Database(Settings(database_url)) as database:
            return await AuditLog(database).read(1000)

    return asyncio.run(run())


@contextmanager
def audit_rejecting_writes(database_url: str) -> Iterator[None]:
    """Make every write to the audit log fail."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("ALTER TABLE penstock.audit ADD CONSTRAINT rejects_all CHECK (false) NOT VALID")
        try:
            yield
        finally:
            conn.execute("ALTER TABLE penstock.audit DROP CONSTRAINT rejects_all")


def sign_token(key: Any, algorithm: str, headers: dict[str, Any] | None = None, **claims: Any) -> str:
    return jwt.encode({"exp": time.time() + 600, "sub": "ada", **claims}, key, algorithm, headers)


def bearer(credential: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {credential}"}
