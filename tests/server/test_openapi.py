"""The OpenAPI document: that it is the one that is committed, and that the server does what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import (
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from schemathesis.config import SchemathesisConfig

from penstock.server.app import ENDPOINTS
from penstock.server.http.endpoint import Role
from penstock.server.http.openapi import document, rendered
from tests import servers
from tests.server.keys import bearer, make_key
from tests.server.serving import Serving, serving
from tests.servers import Server

COMMITTED = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"
DOCUMENT: dict[str, Any] = json.loads(rendered(ENDPOINTS))

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
    ignored_auth,
]
# Streams end when their reader goes, so they are tested where somebody reads them.
schema = schemathesis.openapi.from_dict(DOCUMENT, config=SchemathesisConfig()).exclude(path_regex="/(live|tail)$")


@schemathesis.serializer("application/x-ndjson")
def as_lines(_context: object, value: object) -> bytes:
    """Lines as they are."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


def drawn(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate),
    )


@dataclass
class Guarded:
    """A server that asks for keys, and the key of one who may do all."""

    url: str
    key: str

    def call(self, case: schemathesis.Case[Any]) -> None:
        """Make a request, without waiting for events that nobody pushes, and look at the answer."""
        if "/pop" in case.path:
            if "wait" in case.query:
                case.query["wait"] = "false"
            if isinstance(case.body, dict) and "wait_seconds" in case.body:
                case.body["wait_seconds"] = 0
        # The message plane takes what its clients send, and knows more of them than of schemas.
        strict = [negative_data_rejection] if case.path.startswith("/v1") else []
        case.call_and_validate(base_url=self.url, headers=bearer(self.key), checks=[*CHECKS, *strict])


@pytest.fixture(scope="module")
def guarded(pg18: Server) -> Iterator[Guarded]:
    with pg18.fresh_database(servers.TEMPLATE) as url:
        key = make_key(url, Role.ADMIN)
        environ = {"PENSTOCK_FAILED_ATTEMPTS": "1000000", "PENSTOCK_REQUEST_LOG": "none"}
        with serving(url, ["--require-access"], environ) as running:
            yield Guarded(running.url, key)


def test_the_committed_document_is_up_to_date() -> None:
    assert COMMITTED.read_bytes() == rendered(ENDPOINTS), "run python scripts/generate_openapi.py"


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))


def test_it_is_served(shared_server: Serving) -> None:
    assert httpx.get(f"{shared_server.url}/openapi.json").json() == document(ENDPOINTS)


@schema.parametrize()
@drawn(3)
def test_the_server_does_what_the_document_says(case: schemathesis.Case[Any], guarded: Guarded) -> None:
    guarded.call(case)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@schema.parametrize()
@drawn(300)
def test_the_server_does_what_the_document_says_for_long(case: schemathesis.Case[Any], guarded: Guarded) -> None:
    guarded.call(case)
