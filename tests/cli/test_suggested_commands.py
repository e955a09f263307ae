"""The commands that an empty console suggests work on an empty database."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from penstock.console import pages
from tests.cli.command_line import CommandLine
from tests.docs.test_commands import told_in

_PAGES = Path(next(iter(pages.__path__)))


@pytest.mark.parametrize("page", ["overview", "queues"])
def test_the_first_command_of_an_empty_page_creates_a_queue(cli: CommandLine, page: str) -> None:
    (suggested,) = [text for _, text in told_in(_PAGES / f"{page}.py") if text.startswith("penstock ")]
    _, *words = shlex.split(suggested)
    # A simulation runs until Ctrl-C.
    options = ["--duration", "1", "--fast"] if words[0] == "simulate" else []

    cli.ok(*words, *options)

    assert [queue["name"] for queue in cli.json("queue", "list")] == ["orders"]
