"""Every command in the documentation is one that exists, with the options that it is given."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from penstock.cli.app import app
from tests.docs.console import Command, commands_in
from tests.docs.pages import PAGES, ROOT, Block, blocks_of, name_of, prose_of

pytestmark = pytest.mark.slow

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
    found: Any = command_line()
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


_QUOTED = re.compile(r"`(penstock [a-z][^`]*)`")
#: A text that is a command, as in examples and empty pages. Elsewhere, names of threads and connections look so.
_WHOLE = re.compile(r"^penstock [a-z].*")
_ANYTHING = "…"


def commands_of_module(module: Path) -> Iterator[tuple[int, str]]:
    """Return the commands in the texts of a module, with ``…`` for inserted values, and not those of its docstrings."""
    tree = ast.parse(module.read_text())
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else _ANYTHING for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | docstrings:
            text = node.value
        else:
            continue
        whole = _WHOLE.findall(text) if {"cli", "console"} & set(module.parts) else []
        yield from ((node.lineno, command) for command in [*_QUOTED.findall(text), *whole])


@cache
def command_line() -> Any:
    """Return the tree of commands."""
    return typer.main.get_command(app)


def check_names(words: list[str]) -> None:
    """Raise if there is no such command or option. Required arguments may be missing."""
    words = words[: words.index("--")] if "--" in words else words
    found: Any = command_line()
    names = [word for word in words if not word.startswith("-")]
    while hasattr(found, "commands") and names:
        assert names[0] in found.commands, f"there is no command {' '.join(words)}"
        found = found.commands[names.pop(0)]
    known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert given <= known | {"--help"}, f"{' '.join(words)}: it takes no {', '.join(given - known)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_options_in_prose_exist(page: Path) -> None:
    """Backticked commands in the text, such as `penstock queue create ota.requests --by key`."""
    for line, text in prose_of(page):
        for command in _QUOTED.findall(text):
            for words in Command(command.replace("…", ""), "").simple_commands():
                if words[0] == "penstock":
                    try:
                        check_names(words[1:])
                    except AssertionError as wrong:
                        raise AssertionError(f"{name_of(page)}:{line}: {wrong}") from None


_OPTION = re.compile(r"`(--[a-z][\w-]*)")
#: Options of spark-submit, and of the chaos tests.
_OTHER_OPTIONS = {"--deploy-mode", "--cluster", "--healthy", "--plan", "--without-spark"}


@cache
def every_option() -> set[str]:
    """Return the options of all commands."""
    found: set[str] = set()
    commands = [command_line()]
    while commands:
        command = commands.pop()
        found.update(option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts))
        commands += getattr(command, "commands", {}).values()
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_in_prose_exist(page: Path) -> None:
    """Options that the text names without their command, such as `--wait 60`."""
    told = {option for _, text in prose_of(page) for option in _OPTION.findall(text)}
    assert sorted(told - every_option() - _OTHER_OPTIONS) == []


def test_commands_that_people_are_told_of_exist() -> None:
    count = 0
    for module in sorted((ROOT / "src").rglob("*.py")):
        for line, text in commands_of_module(module):
            for words in Command(text.replace("'{", "'").replace("}'", "'"), "").simple_commands():
                if words[0] == "penstock" and _ANYTHING not in words[1]:
                    count += 1
                    try:
                        check_names(words[1:])
                    except AssertionError as wrong:
                        raise AssertionError(f"{module.name}:{line}: {wrong}") from None
    assert count > 100
