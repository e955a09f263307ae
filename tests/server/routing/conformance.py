"""Random requests that check the conformance of the server to its OpenAPI document."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

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
from penstock.server.routing.openapi import render_document
from tests.server.keys import bearer

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


def conformance_test(operation: str, requests: int) -> Any:
    """Return a test that sends random requests for one operation."""

    @schema.include(operation_id=operation).parametrize()
    @examples(requests)
    def test(case: schemathesis.Case[Any], admin: AdminClient) -> None:
        admin.call(case)

    return test


def conformance_tests(suffix: str, requests: int) -> dict[str, Any]:
    """Return a test for each operation, by name.

    pytest gives all tests that schemathesis makes of one function the same node id, and pytest-xdist runs only one of
    them.
    """
    return {f"test_{operation}_{suffix}": conformance_test(operation, requests) for operation in OPERATIONS}
