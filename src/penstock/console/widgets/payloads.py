"""Formatting of event data: indented, highlighted and truncated."""

from __future__ import annotations

import re
from html import escape

import msgspec

#: Characters shown of one event.
MAX_CHARACTERS = 16_000
#: Characters shown in a list.
_PREVIEW_CHARACTERS = 160

# A text that is cut off has no end. If it did not match, every quote in it would be tried as the start of another text.
_TOKEN = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*")(?=\s*:)|(?P<text>"(?:[^"\\]|\\.)*"?)'
    r"|(?P<number>-?\d[\d.eE+-]*)|(?P<word>true|false|null)"
)


def format_json(raw: bytes) -> str:
    """Indent JSON. Other data is returned unchanged."""
    try:
        return msgspec.json.format(raw, indent=2).decode("utf-8", "replace")
    except (ValueError, RecursionError):
        return raw.decode("utf-8", "replace")


def preview(raw: bytes) -> str:
    """Return the first characters of the data."""
    text = raw[: 4 * _PREVIEW_CHARACTERS].decode("utf-8", "replace")
    return text if len(raw) <= _PREVIEW_CHARACTERS else f"{text[:_PREVIEW_CHARACTERS]}…"


def highlight_json(raw: bytes) -> str:
    """Return JSON as HTML with highlighted tokens."""
    formatted = format_json(raw)
    shown = formatted[:MAX_CHARACTERS]
    parts: list[str] = []
    last = 0
    for token in _TOKEN.finditer(shown):
        parts += [escape(shown[last : token.start()]), f'<i class="ps-json-{token.lastgroup}">{escape(token[0])}</i>']
        last = token.end()
    parts.append(escape(shown[last:]))
    if len(formatted) > MAX_CHARACTERS:
        parts.append(f'\n<em class="ps-muted">… {len(formatted) - MAX_CHARACTERS:,} more characters</em>')
    return f'<pre class="ps-json ps-code-block" tabindex="0">{"".join(parts)}</pre>'
