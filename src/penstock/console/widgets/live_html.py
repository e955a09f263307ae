"""HTML from the server that is updated in place."""

from __future__ import annotations

from nicegui.elements.mixins.content_element import ContentElement


class LiveHtml(ContentElement, component="live_html.js"):
    """HTML whose unchanged nodes stay when the content is set again.

    ``ui.html`` replaces all nodes. A link would then lose the keyboard focus, and a click that began before the update
    would be lost. The content is not sanitized: whoever sets it escapes all values.
    """

    def __init__(self) -> None:
        super().__init__(content="")
