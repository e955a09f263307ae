"""Find a Chromium for the console's tests, or install one.

    python scripts/install_chromium.py

Looks on the PATH first and among playwright's own; then has playwright download one, then Debian's packages. In CI a
machine that ends up without one fails here; elsewhere the tests in a browser are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
#: What it is started with: it asks nobody for anything, and needs no graphics card.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MISSING = (
    "there is no Chromium for the tests in a browser: install chromium or google-chrome so that it is on the PATH, "
    "or run `playwright install --with-deps chromium`"
)


def find_chromium() -> str | None:
    """The browser's program, if there is one."""
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return found
    return _of_playwright()


def _of_playwright() -> str | None:
    """Looked for by hand: to start playwright for its answer takes longer than all the rest."""
    told = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    cache = "Library/Caches" if sys.platform == "darwin" else ".cache"
    places = [Path(told)] if told else [Path.home() / cache / "ms-playwright"]
    patterns = ("chromium-*/chrome-linux*/chrome", "chromium-*/chrome-mac*/Chromium.app/Contents/MacOS/Chromium")
    found = [path for place in places for pattern in patterns for path in place.glob(pattern)]
    return str(max(found)) if found else None


def install() -> None:
    """Try each way until there is one."""
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)
    if find_chromium() is None and shutil.which("apt-get") is not None and os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "--quiet"], check=False)
        subprocess.run(["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium"], check=False)


def main() -> int:
    if find_chromium() is not None:
        return 0
    print("Installing a Chromium for the tests in a browser", flush=True)
    install()
    if find_chromium() is not None:
        return 0
    print(MISSING, file=sys.stderr)
    return 1 if os.environ.get("CI") else 0


if __name__ == "__main__":
    sys.exit(main())
