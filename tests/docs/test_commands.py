"""Every command in the documentation is one that exists, with the options that it is given."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer.main

from penstock.cli.app import app
from tests.docs.console import Command, commands_in
from tests.docs.pages import PAGES, ROOT, Block, blocks_of

_BLOCKS = [block for page in PAGES for block in blocks_of(page, "console")]


@pytest.mark.parametrize("block", _BLOCKS, ids=str)
def test_commands_exist_and_take_their_options(block: Block) -> None:
    commands = list(commands_in(block))

    assert commands, "a console block shows a command behind a $"
    for command in commands:
        for words in command.simple_commands():
            check(command, words)


def check(command: Command, words: list[str]) -> None:
    if words[0] == "penstock":
        parse(words[1:])
    elif words[0] == "make":
        targets = {word for word in words[1:] if "=" not in word}
        assert targets <= make_targets(), f"the Makefile has no such target: {command.text}"


def parse(arguments: list[str]) -> None:
    """Read arguments as the command line would, without running anything; raises if it would refuse them."""
    found: Any = typer.main.get_command(app)
    context = None
    while True:
        context = found.make_context(found.name, list(arguments), parent=context)
        if not hasattr(found, "commands"):
            return
        arguments = [*context._protected_args, *context.args]
        if not arguments:
            return  # alone, it shows its help
        _, found, arguments = found.resolve_command(context, arguments)


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("wrong", ["queues list", "queue push --no-such-option", "queue create", "group seek orders"])
def test_a_wrong_command_would_be_noticed(wrong: str) -> None:
    with pytest.raises(typer.TyperException):
        parse(wrong.split())
