"""The server conforms to its OpenAPI document in many random requests."""

from __future__ import annotations

import pytest

from tests.server.routing.conformance import conformance_tests

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

globals().update(conformance_tests("conforms_for_many_requests", 300))
