"""Code editor for JSON and SQL."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

from nicegui import ui

from penstock.console.assets import asset_url


def code_editor(
    value: str,
    language: Literal["JSON", "PostgreSQL"],
    label: str,
    *,
    height: str = "16rem",
    run: Callable[[], Any] | None = None,
) -> ui.codemirror:
    """Create an editor in the colours of the theme. Ctrl+Enter calls ``run``; Escape and Tab move the focus out."""
    created = ui.codemirror(value, language=language, line_wrapping=True, indent="  ")
    created.classes("ps-editor").style(f"height: {height}")
    if run is not None:
        created.map_key("Mod-Enter", lambda _: run())
    # NiceGUI has no options for the accessible name and for a theme that follows the page.
    ui.run_javascript(
        f'import("{asset_url("editor.js")}").then((module) => module.prepare({created.id}, {json.dumps(label)}))'
    )
    return created
