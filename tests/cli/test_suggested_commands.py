"""The commands that pages of the console suggest work on a database without queries."""

from __future__ import annotations

import ast
import importlib
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.console import pages
from tests.cli.command_line import CommandLine

_PAGES = Path(next(iter(pages.__path__)))
#: The queue of a page of a queue.
_QUEUE = "orders"
#: Options with which a command ends by itself.
_UNTIL_DONE = {"simulate": ["--duration", "1", "--fast"], "sql": ["--available-now", "--report", "0"]}


def _commands_of(module: ModuleType) -> Iterator[str]:
    """The commands in the empty states of a page, with the name of the queue in them."""
    for call in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr == "empty_state" and len(call.args) > 2:
            yield _text(call.args[2], module)


def _text(node: ast.expr, module: ModuleType) -> str:
    if isinstance(node, ast.Name):
        return str(getattr(module, node.id))
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else _QUEUE for each in node.values)
    return str(ast.literal_eval(node))


def _suggestions() -> Iterator[Any]:
    commands: dict[str, str] = {}
    for file in sorted(_PAGES.rglob("*.py")):
        parts = file.relative_to(_PAGES).with_suffix("").parts
        for command in _commands_of(importlib.import_module(".".join([pages.__name__, *parts]))):
            commands.setdefault(command, parts[-1])
    for command, page in commands.items():
        marks = [pytest.mark.spark, pytest.mark.timeout(600)] if " penstock sql " in command else []
        yield pytest.param(page, command, id=page, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "command"), list(_suggestions()))
def test_the_command_of_an_empty_page_works(
    cli: CommandLine, page: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    *preparations, last = command.split(" && ")
    for preparation in preparations:
        subprocess.run(["bash", "-ec", preparation], check=True)
    program, *words = shlex.split(last)
    assert program == "penstock"
    if page.startswith("queue_"):
        cli.ok("queue", "create", _QUEUE)

    if words[0] == "sink":
        with cli.start(*words) as process:
            while process.poll() is None and not cli.json("group", "list", _QUEUE):
                pass
            process.send_signal(signal.SIGINT)
            assert process.wait() in (0, 130)
    else:
        cli.ok(*words, *_UNTIL_DONE.get(words[0], []))

    if "query list" not in command:
        assert _QUEUE in [queue["name"] for queue in cli.json("queue", "list")]


def test_every_page_with_a_command_is_tested() -> None:
    assert {each.id for each in _suggestions()} >= {"overview", "queues", "queue_detail", "queue_events", "live"}
