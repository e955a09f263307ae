from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.server.auth.identity import Role
from tests.server.access_server import run_access_server
from tests.server.routing.conformance import AdminClient
from tests.servers import TEMPLATE, Server

#: Files whose collection takes seconds, and the marker expression that deselects all of their tests.
_DESELECTED = {"test_conformance.py": "not slow", "test_long_conformance.py": "not long"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    expression = _DESELECTED.get(collection_path.name)
    return True if expression is not None and expression in config.option.markexpr else None


@pytest.fixture(scope="module")
def admin(pg18: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminClient]:
    # Its own database: random requests delete anything.
    with (
        pg18.fresh_database(TEMPLATE) as url,
        run_access_server(url, tmp_path_factory.mktemp("openapi"), request_log="none") as running,
    ):
        yield AdminClient(running.url, running.create_key(Role.ADMIN))
