"""The OpenAPI document."""

from __future__ import annotations

from pathlib import Path

import httpx

from penstock.server.app import ENDPOINTS
from penstock.server.routing.openapi import build_document, render_document
from tests.server.routing.conformance import DOCUMENT

COMMITTED = Path(__file__).parents[3] / "docs" / "reference" / "openapi.json"


def test_committed_document_is_up_to_date() -> None:
    assert COMMITTED.read_bytes() == render_document(ENDPOINTS), "run python scripts/generate_openapi.py"


def test_operation_ids_are_unique() -> None:
    names = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))


def test_server_serves_document(client: httpx.Client) -> None:
    assert client.get("/openapi.json").json() == build_document(ENDPOINTS)
