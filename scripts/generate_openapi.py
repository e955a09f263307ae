"""Write docs/reference/openapi.json from the server's endpoints; with ``--check``, test whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.server.app import ENDPOINTS
from penstock.server.routing.openapi import render_document

DOCUMENT = Path(__file__).parent.parent / "docs" / "reference" / "openapi.json"


def main() -> int:
    text = render_document(ENDPOINTS)
    if "--check" not in sys.argv[1:]:
        DOCUMENT.write_bytes(text)
        return 0
    if DOCUMENT.is_file() and DOCUMENT.read_bytes() == text:
        return 0
    print(f"{DOCUMENT.name} is out of date: run python scripts/generate_openapi.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
