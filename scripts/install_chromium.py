"""Find a Chromium for the console's tests, or install one.

    python scripts/install_chromium.py

Looks on the PATH and in playwright's cache. Otherwise installs one with playwright, then from Debian's packages.
Without a Chromium, this script fails in CI; elsewhere the browser tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
#: Command-line flags: no background requests, no graphics card.
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
    "no Chromium for the browser tests: install chromium or google-chrome on the PATH, "
    "or run `playwright install --with-deps chromium`"
)


def find_chromium() -> str | None:
    """Return the path of the browser, or None."""
    for name in NAMES:
        if (path := shutil.which(name)) is not None:
            return path
    return _find_in_playwright_cache()


def _find_in_playwright_cache() -> str | None:
    # Starting playwright to ask for the path takes seconds.
    configured = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    cache = "Library/Caches" if sys.platform == "darwin" else ".cache"
    caches = [Path(configured)] if configured else [Path.home() / cache / "ms-playwright"]
    patterns = ("chromium-*/chrome-linux*/chrome", "chromium-*/chrome-mac*/Chromium.app/Contents/MacOS/Chromium")
    candidates = [path for directory in caches for pattern in patterns for path in directory.glob(pattern)]
    return str(max(candidates)) if candidates else None


def install() -> None:
    """Install with playwright, then with apt."""
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)
    if find_chromium() is None and shutil.which("apt-get") is not None and os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "--quiet"], check=False)
        subprocess.run(["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium"], check=False)


def main() -> int:
    if find_chromium() is not None:
        return 0
    print("Installing Chromium for the browser tests", flush=True)
    install()
    if find_chromium() is not None:
        return 0
    print(MISSING, file=sys.stderr)
    return 1 if os.environ.get("CI") else 0


if __name__ == "__main__":
    sys.exit(main())
