"""Take the screenshots of the documentation from a running console, such as that of the demo.

    python scripts/screenshots.py http://127.0.0.1:6633 [--query page_views] [--wait 60]
    python scripts/screenshots.py http://127.0.0.1:6633 --only gates
    python scripts/screenshots.py http://127.0.0.1:6633 --query sites --demo

The last command takes only the screenshot of the README, docs/assets/demo.png, while `penstock demo` runs. The others
are docs/assets/console-*.png: in the demo, take `gates` while there are too many calls, and `alerts` while the boiler
overheats. Pillow, if installed, reduces them to a palette.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent))
from scripts.install_chromium import FLAGS, MISSING, find_chromium

ASSETS = Path(__file__).parent.parent / "docs" / "assets"


def pages(query: str | None) -> dict[str, str]:
    """Return the paths of the pages by the name of their screenshot."""
    parameters = f"?query={quote(query)}" if query else ""
    return {
        "overview": "/",
        "live": f"/live{parameters}",
        "queries": f"/queries{parameters}",
        "gates": "/gates",
        "alerts": "/alerts",
    }


def take(page: Page, base: str, name: str, path: str, wait: float) -> None:
    response = page.goto(base.rstrip("/") + path)
    page.locator("h1").wait_for()
    if response is not None and not response.ok:
        print(f"{path}: no such page, skipped")
        return
    # The driver name contains the host name.
    page.add_style_tag(content=".ps-driver { visibility: hidden }")
    page.wait_for_timeout(wait * 1000)
    target = ASSETS / (f"console-{name}.png" if name != "demo" else "demo.png")
    page.screenshot(path=target)
    shrink(target)
    print(f"{target.relative_to(ASSETS.parent.parent)}: {target.stat().st_size // 1024} KiB")


def shrink(path: Path) -> None:
    with contextlib.suppress(ImportError):
        from PIL import Image

        with Image.open(path) as image:
            small = image.convert("RGB").quantize(192, dither=Image.Dither.NONE)
        small.save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the URL of the console")
    parser.add_argument("--query", help="the query on the live board and in the details (default: the first)")
    parser.add_argument("--wait", type=float, default=60.0, help="seconds for the overview's charts to fill")
    parser.add_argument("--only", help="take only the screenshot with this name")
    parser.add_argument("--demo", action="store_true", help="take only the screenshot of the demo")
    options = parser.parse_args()
    program = find_chromium()
    if program is None:
        sys.exit(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        desktop = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light")
        if options.demo:
            desktop.set_viewport_size({"width": 1280, "height": 580})
            take(desktop, options.url, "demo", f"/live?query={quote(options.query or 'sites')}", 15.0)
            return
        for name, path in pages(options.query).items():
            if options.only not in (None, name):
                continue
            take(desktop, options.url, name, path, options.wait if name == "overview" else 4.0)
        browser.close()


if __name__ == "__main__":
    main()
