"""Events' data as people read it: indented, coloured, and never more of it than a page can hold."""

from __future__ import annotations

import re
from html import escape

import msgspec

#: Characters that are shown of one event, and in a line about it.
MOST = 16_000
_PREVIEW = 160

_TOKEN = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*")(?=\s*:)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>-?\d[\d.eE+-]*)|(?P<word>true|false|null)'
)


def pretty(raw: bytes) -> str:
    """JSON, indented; what is no JSON as it is."""
    try:
        return msgspec.json.format(raw, indent=2).decode("utf-8", "replace")
    except (ValueError, RecursionError):
        return raw.decode("utf-8", "replace")


def preview(raw: bytes) -> str:
    """The beginning of it in one line."""
    text = raw[: 4 * _PREVIEW].decode("utf-8", "replace")
    return text if len(raw) <= _PREVIEW else f"{text[:_PREVIEW]}…"


def coloured(raw: bytes) -> str:
    """JSON as HTML: keys, texts, numbers and words in the colours of the theme."""
    whole = pretty(raw)
    shown = whole[:MOST]
    parts: list[str] = []
    last = 0
    for token in _TOKEN.finditer(shown):
        parts += [escape(shown[last : token.start()]), f'<i class="ps-json-{token.lastgroup}">{escape(token[0])}</i>']
        last = token.end()
    parts.append(escape(shown[last:]))
    if len(whole) > MOST:
        parts.append(f'\n<em class="ps-muted">… {len(whole) - MOST:,} more characters</em>')
    return f'<pre class="ps-json" tabindex="0">{"".join(parts)}</pre>'
