"""Addresses of the server hold any name, and none of them leads elsewhere."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest

from penstock.server.auth.api_keys import Keys
from penstock.server.http.endpoint import Role
from tests.corpus.hostile import NAMES
from tests.server.keys import with_keys

PRINTABLE = [name for name in NAMES if name.isprintable()]


@pytest.mark.parametrize("name", [*PRINTABLE, "%00", "a%2e%2e%2fb"], ids=lambda name: name[:20])
def test_a_path_of_the_server_holds_any_name(name: str, v1: httpx.Client) -> None:
    path = quote(name, safe="")
    answer = v1.put(f"queues/{path}", json={})
    if name in (".", ".."):
        assert answer.status_code in (200, 404, 405)
        return
    assert answer.status_code == 200, answer.text
    assert answer.json()["name"] == name
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
def test_no_address_leads_to_a_file(path: str, v1: httpx.Client) -> None:
    url = str(v1.base_url).split("/v1")[0]
    answer = httpx.get(httpx.URL(url).copy_with(raw_path=path.encode()), timeout=30)
    assert answer.status_code in (404, 405)
    assert "root:" not in answer.text


def test_a_key_of_any_name_is_made_found_and_revoked(database_url: str) -> None:
    async def live(keys: Keys) -> None:
        for name in PRINTABLE:
            made, text = await keys.create(name, [Role.READ], [name])
            found = await keys.find(text.id)
            assert found is not None
            assert (found.identity.id, found.identity.queues) == (made.id, (name,))
            await keys.revoke(made.id)
        known = await keys.all()
        assert sorted(key.name for key in known) == sorted(PRINTABLE)
        assert all(key.revoked_at for key in known)

    with_keys(database_url, live)
