"""``/v1/gates``: list gates and change their limits."""

from __future__ import annotations

import httpx
import pytest

from penstock import SyncPenstock
from tests import gate_rows
from tests.server.problems import problem_kind
from tests.server.server_process import RunningServer


@pytest.fixture(scope="module", autouse=True)
def gated_query(shared_url: str) -> None:
    """A query with gates for two tenants."""
    gate_rows.insert_gated_query(shared_url)


def test_list_and_change_gates(v1: httpx.Client) -> None:
    first, second = v1.get("gates", params={"query": gate_rows.QUERY}).json()["gates"]
    assert (first["key"], second["key"], first["limit"]) == ("tenant-7", "tenant-1", 200.0)
    assert v1.patch(f"gates/{gate_rows.QUERY}", json={"key": "tenant-7", "rate": 250}).is_success
    assert v1.post(f"gates/{gate_rows.QUERY}/hold", json={"key": "tenant-7", "seconds": 30}).is_success
    (changed,) = v1.get("gates", params={"query": gate_rows.QUERY, "key": "tenant-7"}).json()["gates"]
    assert (changed["rate"], changed["hold_until"] is not None) == (250.0, True)

    assert problem_kind(v1.patch("gates/nobody", json={"paused": True})) == (404, "not-found")
    assert problem_kind(v1.patch(f"gates/{gate_rows.QUERY}", json={"rate": -1}))[0] == 422
    assert problem_kind(v1.patch(f"gates/{gate_rows.QUERY}", json={"speed": 1}))[0] in (400, 422)


def test_client_changes_gates(shared_server: RunningServer) -> None:
    with SyncPenstock(shared_server.url) as penstock:
        gate = penstock.gate(gate_rows.QUERY)
        gate.set("tenant-1", rate=5)
        gate.pause("tenant-1")
        gate.hold("tenant-1", seconds=10)
        (changed,) = gate.list("tenant-1")
        assert (changed.rate, changed.paused, changed.hold_until is not None) == (5, True, True)
        gate.resume("tenant-1")
        (changed,) = gate.list("tenant-1")
        assert (changed.paused, changed.hold_until) == (False, None)
