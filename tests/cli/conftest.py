from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

import pytest

from penstock.log.log import Log
from tests.cli.command_line import Arrange, CommandLine


@pytest.fixture
def cli(database_url: str) -> CommandLine:
    """The command line, on a database of the test's own."""
    return CommandLine(database_url)


@pytest.fixture
def arrange(cli: CommandLine) -> Arrange:
    """Does to the log what the command line has no command for."""

    def run(act: Callable[[Log], Awaitable[object]]) -> None:
        async def opened() -> None:
            async with cli.log() as log:
                await act(log)

        asyncio.run(opened())

    return run


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Commands set the level of the package's logger, for their process; this one has other tests to run."""
    logger = logging.getLogger("penstock")
    before = logger.level
    yield
    logger.setLevel(before)
