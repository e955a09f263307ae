"""Shows docstrings as they are meant: the marks of reStructuredText in them become Markdown.

The code's docstrings use two of them, ``::`` before a block of code and ``:meth:`` and its like around a name.
mkdocs.yml names this file as an extension of Griffe, which reads the docstrings.
"""

from __future__ import annotations

import re
import textwrap
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


class Docstrings(griffe.Extension):
    """Rewrites every docstring that is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
