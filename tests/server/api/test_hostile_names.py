"""Hostile names in paths and keys."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest

from penstock.server.auth.api_keys import ApiKeyStore
from penstock.server.auth.identity import Role
from tests.corpus.hostile import NAMES
from tests.server.keys import use_key_store

PRINTABLE = [name for name in NAMES if name.isprintable()]


@pytest.mark.parametrize("name", [*PRINTABLE, "%00", "a%2e%2e%2fb"], ids=lambda name: name[:20])
def test_paths_support_any_queue_name(name: str, v1: httpx.Client) -> None:
    path = quote(name, safe="")
    response = v1.put(f"queues/{path}", json={})
    if name in (".", ".."):
        assert response.status_code in (200, 404, 405)
        return
    assert response.status_code == 200, response.text
    assert response.json()["name"] == name
    assert v1.get(f"queues/{path}").json()["name"] == name
    for parameter in ("key", "partition"):
        seen = v1.get(f"queues/{path}/events", params={parameter: name})
        assert seen.status_code in (200, 400, 404), seen.text
    assert v1.delete(f"queues/{path}").status_code == 204


@pytest.mark.parametrize(
    "path",
    [
        "/..%2f..%2fetc/passwd",
        "/v1/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/v1/queues/..%2f..",
    ],
)
def test_paths_do_not_lead_to_files(path: str, v1: httpx.Client) -> None:
    url = str(v1.base_url).split("/v1")[0]
    response = httpx.get(httpx.URL(url).copy_with(raw_path=path.encode()), timeout=30)
    assert response.status_code in (404, 405)
    assert "root:" not in response.text


def test_keys_support_any_name(database_url: str) -> None:
    async def live(keys: ApiKeyStore) -> None:
        for name in PRINTABLE:
            made, text = await keys.create(name, [Role.READ], [name])
            stored = await keys.find(text.id)
            assert stored is not None
            assert (stored.identity.id, stored.identity.queues) == (made.id, (name,))
            await keys.revoke(made.id)
        known = await keys.list_all()
        assert sorted(key.name for key in known) == sorted(PRINTABLE)
        assert all(key.revoked_at for key in known)

    use_key_store(database_url, live)
