"""Keys are made and rotated once, whichever answer of the database is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.server.auth.api_keys import Keys
from penstock.server.auth.key_format import KeyText
from penstock.server.http.endpoint import Role
from tests.log.proxy import Proxy, each_answer, proxied


@pytest.fixture
async def losing(database_url: str, data_dir: Path) -> AsyncIterator[tuple[Proxy, Keys]]:
    """Keys over one connection, which the proxy cuts."""
    async with (
        proxied(database_url, data_dir) as (proxy, through),
        Database(Settings(through, pool_size=1)) as database,
    ):
        yield proxy, Keys(database)


async def test_a_key_whose_answer_is_lost_is_made_once(losing: tuple[Proxy, Keys]) -> None:
    proxy, keys = losing
    await keys.create("the first, which prepares the statement", [Role.READ])

    async def attempt(i: int) -> None:
        made, text = await keys.create(f"key {i}", [Role.READ])
        proxy.stop_losing()
        assert await opens(keys, text)
        assert [key for key in await keys.all() if key.name == f"key {i}"] == [made]

    await each_answer(proxy, attempt)


async def test_a_rotation_whose_answer_is_lost_leaves_the_old_secret_its_grace(losing: tuple[Proxy, Keys]) -> None:
    proxy, keys = losing
    made, _ = await keys.create("rotated", [Role.READ])
    _, old = await keys.rotate(made.id)

    async def attempt(_i: int) -> None:
        nonlocal old
        _, new = await keys.rotate(made.id)
        proxy.stop_losing()
        assert await opens(keys, new)
        assert await opens(keys, old)
        old = new

    await each_answer(proxy, attempt)


async def opens(keys: Keys, text: KeyText) -> bool:
    found = await keys.find(text.id)
    return found is not None and found.matches(text)
