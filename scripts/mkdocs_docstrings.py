"""Shows docstrings as they are meant: the marks of reStructuredText in them become Markdown.

The code's docstrings use two of them, ``::`` before a block of code and ``:meth:`` and its like around a name, and a
comment that begins with ``#:`` above an attribute. mkdocs.yml names this file as an extension of Griffe, which reads
the docstrings.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`~?([^`]+)`")
# A pair of colons on its own, or after a space, disappears; after a word one of them stays.
_BLOCK = re.compile(r"(?P<alone>^|\s+)?::\n\n(?P<code>(?: +\S.*(?:\n|$)|\n(?= +\S))+)")


def as_markdown(text: str) -> str:
    """The text with code in fences and plain names where roles were."""
    return _BLOCK.sub(_fenced, _ROLE.sub(lambda role: f"`{role[1].rpartition('.')[2]}`", text))


def _fenced(block: re.Match[str]) -> str:
    code = textwrap.dedent(block["code"]).rstrip()
    language = "text" if "──" in code else "python"
    return f"{':' if block['alone'] is None else ''}\n\n```{language}\n{code}\n```\n"


def _comment_above(attribute: griffe.Attribute) -> str:
    """What the ``#:`` lines right above an attribute say."""
    found: list[str] = []
    number = attribute.lineno or 1
    lines = attribute.lines_collection[attribute.filepath] if isinstance(attribute.filepath, Path) else []
    while lines and number > 1 and (line := lines[number - 2].strip()).startswith("#:"):
        found.insert(0, line.removeprefix("#:").strip())
        number -= 1
    return " ".join(found)


class Docstrings(griffe.Extension):
    """Rewrites every docstring that is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if isinstance(obj, griffe.Attribute) and obj.docstring is None and (comment := _comment_above(obj)):
            obj.docstring = griffe.Docstring(comment, lineno=obj.lineno, parent=obj)
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
