from __future__ import annotations

import pytest

# So that a total that is wrong is shown beside the right one.
pytest.register_assert_rewrite("tests.engine.crash.orders")
