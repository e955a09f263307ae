"""Static files: styles, scripts and the icon."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from pathlib import Path

DIRECTORY = Path(str(resources.files(__name__)))


@cache
def asset_url(name: str) -> str:
    """Return the URL of a static file. It contains a hash of the content, so browsers can cache the file forever."""
    digest = hashlib.sha256((DIRECTORY / name).read_bytes()).hexdigest()[:12]
    return f"/assets/{name}?{digest}"
