"""Creating and rotating keys while results of the database are lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.server.auth.api_keys import ApiKeyStore
from penstock.server.auth.identity import Role
from penstock.server.auth.key_format import PlaintextKey
from tests.log.lossy_proxy import Proxy, each_answer, proxied


@pytest.fixture
async def losing(database_url: str, data_dir: Path) -> AsyncIterator[tuple[Proxy, ApiKeyStore]]:
    """A key store with one connection, which the proxy cuts."""
    async with (
        proxied(database_url, data_dir) as (proxy, through),
        Database(Settings(through, pool_size=1)) as database,
    ):
        yield proxy, ApiKeyStore(database)


async def test_create_is_idempotent_when_the_result_is_lost(losing: tuple[Proxy, ApiKeyStore]) -> None:
    proxy, keys = losing
    await keys.create("prepares the statement", [Role.READ])

    async def attempt(i: int) -> None:
        made, text = await keys.create(f"key {i}", [Role.READ])
        proxy.stop_losing()
        assert await is_valid(keys, text)
        assert [key for key in await keys.list_all() if key.name == f"key {i}"] == [made]

    await each_answer(proxy, attempt)


async def test_rotate_keeps_the_grace_period_when_the_result_is_lost(losing: tuple[Proxy, ApiKeyStore]) -> None:
    proxy, keys = losing
    made, _ = await keys.create("rotated", [Role.READ])
    _, old = await keys.rotate(made.id)

    async def attempt(_i: int) -> None:
        nonlocal old
        _, new = await keys.rotate(made.id)
        proxy.stop_losing()
        assert await is_valid(keys, new)
        assert await is_valid(keys, old)
        old = new

    await each_answer(proxy, attempt)


async def is_valid(keys: ApiKeyStore, text: PlaintextKey) -> bool:
    stored = await keys.find(text.id)
    return stored is not None and stored.matches(text)
