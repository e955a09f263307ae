"""Files that browsers keep: the look, an icon, and the few lines that know the reader's zone and theme."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from pathlib import Path

DIRECTORY = Path(str(resources.files(__name__)))


@cache
def address_of_asset(name: str) -> str:
    """Where a file is served; another address as soon as it is another file, so that it may be kept for good."""
    digest = hashlib.sha256((DIRECTORY / name).read_bytes()).hexdigest()[:12]
    return f"/assets/{name}?{digest}"
