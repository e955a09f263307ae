"""Gates over HTTP: what waits, and limits that change."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from penstock import SyncPenstock
from tests import gated
from tests.server.refusals import refusal
from tests.server.serving import serving
from tests.servers import TEMPLATE, Server


@pytest.fixture(scope="module")
def url(pg18: Server) -> Iterator[str]:
    with pg18.fresh_database(TEMPLATE) as database, serving(database) as running:
        gated.store(database)
        yield running.url


def test_gates_are_looked_at_and_changed(url: str) -> None:
    with httpx.Client(base_url=f"{url}/v1", timeout=30) as v1:
        first, second = v1.get("gates").json()["gates"]
        assert (first["key"], second["key"], first["limit"]) == ("tenant-7", "tenant-1", 200.0)
        assert v1.patch(f"gates/{gated.QUERY}", json={"key": "tenant-7", "rate": 250}).is_success
        assert v1.post(f"gates/{gated.QUERY}/hold", json={"key": "tenant-7", "seconds": 30}).is_success
        (now,) = v1.get("gates", params={"query": gated.QUERY, "key": "tenant-7"}).json()["gates"]
        assert (now["rate"], now["hold_until"] is not None) == (250.0, True)

        assert refusal(v1.patch("gates/nobody", json={"paused": True})) == (404, "not-found")
        assert refusal(v1.patch(f"gates/{gated.QUERY}", json={"rate": -1}))[0] == 422
        assert refusal(v1.patch(f"gates/{gated.QUERY}", json={"speed": 1}))[0] in (400, 422)


def test_the_client_does_the_same_over_http(url: str) -> None:
    with SyncPenstock(url) as q:
        gate = q.gate(gated.QUERY)
        gate.set("tenant-1", rate=5)
        gate.pause("tenant-1")
        gate.hold("tenant-1", seconds=10)
        (now,) = gate.list("tenant-1")
        assert (now.rate, now.paused, now.hold_until is not None) == (5, True, True)
        gate.resume("tenant-1")
        (now,) = gate.list("tenant-1")
        assert (now.paused, now.hold_until) == (False, None)
