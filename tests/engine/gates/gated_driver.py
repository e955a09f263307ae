"""A driver of a gated stream, to be killed: ``python -m tests.engine.gates.gated_driver URL``."""

from __future__ import annotations

import sys

from penstock.core.settings import Settings
from tests.engine.gates.gated_calls import stream

if __name__ == "__main__":
    stream().run("gated", settings=Settings(database_url=sys.argv[1]), master="local[2]", lease_seconds=2)
