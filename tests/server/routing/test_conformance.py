"""The server conforms to its OpenAPI document."""

from __future__ import annotations

import pytest

from tests.server.routing.conformance import conformance_tests

pytestmark = pytest.mark.slow

globals().update(conformance_tests("conforms", 3))
