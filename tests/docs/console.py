"""Shell commands in the documentation."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tests.docs.pages import Block

_CONTINUED = re.compile(r"\\\n>? *")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True)
class Command:
    """What is typed after a prompt, and what the page says that it prints."""

    text: str
    output: str

    def simple_commands(self) -> list[list[str]]:
        """The words of each command that a pipe, an ``&&`` or the like connects; variables before one left out."""
        shell = shlex.shlex(self.text, posix=True, punctuation_chars="|&;<>")
        shell.whitespace_split = True
        shell.commenters = "#"
        commands: list[list[str]] = [[]]
        for word in shell:
            if word in (">", ">>", "<"):
                shell.get_token()
            elif set(word) <= set("|&;<>"):
                commands.append([])
            elif commands[-1] or not _ASSIGNMENT.match(word):
                commands[-1].append(word)
        return [words for words in commands if words]


def commands_in(block: Block) -> Iterator[Command]:
    """The commands of a ``console`` block, each behind a ``$``."""
    text = _CONTINUED.sub("", block.text)
    for typed in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = typed.partition("\n")
        yield Command(command, output.strip("\n"))
