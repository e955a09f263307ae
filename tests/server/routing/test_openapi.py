"""The OpenAPI document, and the conformance of the server to it."""

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
from penstock.server.auth.identity import Role
from penstock.server.routing.openapi import build_document, render_document
from tests.server.access_server import run_access_server
from tests.server.keys import bearer
from tests.servers import TEMPLATE, Server

pytestmark = pytest.mark.slow

COMMITTED = Path(__file__).parents[3] / "docs" / "reference" / "openapi.json"
DOCUMENT: dict[str, Any] = json.loads(render_document(ENDPOINTS))

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
    ignored_auth,
]
OPERATIONS = [
    operation["operationId"]
    for path, operations in DOCUMENT["paths"].items()
    for operation in operations.values()
    # Live streams end only when their client disconnects; they have their own tests.
    if not path.endswith(("/live", "/tail"))
]
schema = schemathesis.openapi.from_dict(DOCUMENT, config=SchemathesisConfig())


@schemathesis.serializer("application/x-ndjson")
def as_lines(_context: object, value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


def examples(count: int) -> settings:
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate),
    )


@dataclass
class AdminClient:
    """Calls a server with access control as an administrator."""

    url: str
    key: str

    def call(self, case: schemathesis.Case[Any]) -> None:
        """Send a request that does not wait for events, and check the response."""
        if "/pop" in case.path:
            if "wait" in case.query:
                case.query["wait"] = "false"
            if isinstance(case.body, dict) and "wait_seconds" in case.body:
                case.body["wait_seconds"] = 0
        # Queen's protocol accepts more than its schemas say.
        strict = [negative_data_rejection] if case.path.startswith("/v1") else []
        case.call_and_validate(base_url=self.url, headers=bearer(self.key), checks=[*CHECKS, *strict])


@pytest.fixture(scope="module")
def admin(pg18: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminClient]:
    # Its own database: random requests delete anything.
    with (
        pg18.fresh_database(TEMPLATE) as url,
        run_access_server(url, tmp_path_factory.mktemp("openapi"), request_log="none") as running,
    ):
        yield AdminClient(running.url, running.create_key(Role.ADMIN))


def test_committed_document_is_up_to_date() -> None:
    assert COMMITTED.read_bytes() == render_document(ENDPOINTS), "run python scripts/generate_openapi.py"


def test_operation_ids_are_unique() -> None:
    names = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))


def test_server_serves_document(client: httpx.Client) -> None:
    assert client.get("/openapi.json").json() == build_document(ENDPOINTS)


def conformance_test(operation: str, requests: int) -> Any:
    """Return a test that sends random requests for one operation."""

    @schema.include(operation_id=operation).parametrize()
    @examples(requests)
    def test(case: schemathesis.Case[Any], admin: AdminClient) -> None:
        admin.call(case)

    return test


# One function per operation: pytest gives all tests that schemathesis makes of one function the same node id, and
# pytest-xdist runs only one of them.
for _operation in OPERATIONS:
    globals()[f"test_{_operation}_conforms"] = conformance_test(_operation, 3)
    _long = pytest.mark.timeout(3600)(conformance_test(_operation, 300))
    globals()[f"test_{_operation}_conforms_for_many_requests"] = pytest.mark.long(_long)
