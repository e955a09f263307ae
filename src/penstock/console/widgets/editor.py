"""A field for code: JSON or SQL."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

from nicegui import ui

from penstock.console.assets import address_of_asset


def editor(
    value: str,
    language: Literal["JSON", "PostgreSQL"],
    label: str,
    *,
    height: str = "16rem",
    run: Callable[[], Any] | None = None,
) -> ui.codemirror:
    """An editor that goes with the theme; ``run`` is for Ctrl+Enter. Escape and Tab leave it."""
    made = ui.codemirror(value, language=language, line_wrapping=True, indent="  ")
    made.classes("ps-editor").style(f"height: {height}")
    if run is not None:
        made.map_key("Mod-Enter", lambda _: run())
    # Neither its name nor a theme that follows the page's can be said from here.
    ui.run_javascript(
        f'import("{address_of_asset("editor.js")}").then((it) => it.prepare({made.id}, {json.dumps(label)}))'
    )
    return made
