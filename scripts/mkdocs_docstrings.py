"""Griffe extension that converts the reStructuredText in docstrings to Markdown.

It converts ``::`` before a code block and roles such as ``:meth:``, and uses a ``#:`` comment above an attribute as its
docstring.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`~?([^`]+)`")
# "::" alone or after a space is removed; after a word, one colon stays.
_BLOCK = re.compile(r"(?P<alone>^|\s+)?::\n\n(?P<code>(?: +\S.*(?:\n|$)|\n(?= +\S))+)")


def as_markdown(text: str) -> str:
    """Convert code blocks to fences and roles to code."""
    return _BLOCK.sub(_fenced, _ROLE.sub(lambda role: f"`{role[1].rpartition('.')[2]}`", text))


def _fenced(block: re.Match[str]) -> str:
    code = textwrap.dedent(block["code"]).rstrip()
    language = "text" if "──" in code else "python"
    return f"{':' if block['alone'] is None else ''}\n\n```{language}\n{code}\n```\n"


def _comment_above(attribute: griffe.Attribute) -> str:
    """Return the text of the ``#:`` lines above an attribute."""
    comment: list[str] = []
    number = attribute.lineno or 1
    lines = attribute.lines_collection[attribute.filepath] if isinstance(attribute.filepath, Path) else []
    while lines and number > 1 and (line := lines[number - 2].strip()).startswith("#:"):
        comment.insert(0, line.removeprefix("#:").strip())
        number -= 1
    return " ".join(comment)


class Docstrings(griffe.Extension):
    """Converts every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Convert the docstring of an object."""
        if isinstance(obj, griffe.Attribute) and obj.docstring is None and (comment := _comment_above(obj)):
            obj.docstring = griffe.Docstring(comment, lineno=obj.lineno, parent=obj)
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
