"""Keeps the lease of a query while no driver loop runs."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg

from penstock.core.errors import PenstockError
from penstock.engine.query_registry import Registry


def driver_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


async def renew_lease(registry: Registry, query: int, fence: int, lease_seconds: float) -> None:
    """Renew a lease until this is cancelled. Whoever commits meanwhile checks the fencing number."""
    while True:
        await asyncio.sleep(lease_seconds / 4)
        with suppress(PenstockError, psycopg.Error):
            await registry.renew_lease(query, fence, lease_seconds)


@asynccontextmanager
async def keep_lease(registry: Registry, query: int, fence: int, lease_seconds: float) -> AsyncIterator[None]:
    """Renew a lease inside the block."""
    task = asyncio.create_task(renew_lease(registry, query, fence, lease_seconds))
    try:
        yield
    finally:
        task.cancel()
