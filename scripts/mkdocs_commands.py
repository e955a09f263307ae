"""mkdocs hook that generates the command-line reference from the commands.

It replaces ``<!-- commands -->`` and ``<!-- shared options -->`` in the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer.main

from penstock.cli.app import app
from penstock.cli.command_session import SharedOptions

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

_PAGE = "reference/command-line.md"
_MARKUP = re.compile(r"(?<!\\)\[/?[a-z ]+\]")
# Options that typer adds, and those that every command has.
_DOCUMENTED_ELSEWHERE = {"help", "install_completion", "show_completion", *SharedOptions.__annotations__}


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Insert the commands into the page."""
    if page.file.src_uri != _PAGE:
        return markdown
    root: Any = typer.main.get_command(app)
    shared = [option for option in root.params if option.name in SharedOptions.__annotations__]
    markdown = markdown.replace("<!-- shared options -->", "\n".join(_table("option", shared)))
    return markdown.replace("<!-- commands -->", "\n".join(_tree(root, "penstock", 2)))


def _tree(command: Any, path: str, level: int) -> Iterator[str]:
    """Yield the commands of a group, and of its groups under a heading each."""
    for name, child in command.commands.items():
        if child.hidden:
            continue
        if hasattr(child, "commands"):
            yield from ("", f"{'#' * level} {path} {name}", "", child.help or "")
            yield from _tree(child, f"{path} {name}", level + 1)
        else:
            yield from _command(child, f"{path} {name}", level)


def _command(command: Any, path: str, level: int) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name not in _DOCUMENTED_ELSEWHERE]
    usage = " ".join([path, *(_argument(argument) for argument in arguments), *(["[OPTIONS]"] if options else [])])
    yield from ("", f"{'#' * level} {path}", "", command.help or "", "", f"```text\n{usage}\n```", "")
    if arguments:
        yield from (*_table("argument", arguments), "")
    if options:
        yield from (*_table("option", options), "")
    examples = [line.strip().replace("\\[", "[") for line in _MARKUP.sub("", command.epilog or "").splitlines()[1:]]
    if examples:
        yield from ("```console", *(f"$ {line}" for line in examples), "```", "")


def _argument(argument: Any) -> str:
    name: str = argument.metavar.strip("[]")
    return name if argument.required else f"[{name}]"


def _table(title: str, parameters: list[Any]) -> Iterator[str]:
    yield from (f"| {title} | meaning |", "| --- | --- |")
    for parameter in parameters:
        yield f"| {_spelling(parameter)} | {_cell(parameter.help or '')}{_default(parameter)} |"


def _spelling(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar.strip('[]')}`"
    value = "" if parameter.is_flag else f" {parameter.metavar or _choices(parameter)}"
    return ", ".join(f"`{_cell(name + value)}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _choices(parameter: Any) -> str:
    return "|".join(str(choice) for choice in getattr(parameter.type_descriptor.annotation, "__args__", ["VALUE"]))


def _default(parameter: Any) -> str:
    if parameter.required and parameter.param_type_name == "option":
        return " Required."
    shown = getattr(parameter, "show_default", False)
    if isinstance(shown, str):
        return f" Default: {_cell(shown)}."
    plain = parameter.default not in (None, False, "") and shown and parameter.param_type_name == "option"
    return f" Default: {parameter.default:g}." if plain and isinstance(parameter.default, int | float) else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
