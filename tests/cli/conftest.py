from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

import pytest

from penstock.log.log import Log
from tests.cli.command_line import Arrange, CommandLine


@pytest.fixture
def cli(database_url: str) -> CommandLine:
    """Commands on the database of the test."""
    return CommandLine(database_url)


@pytest.fixture
def arrange(cli: CommandLine) -> Arrange:
    """Run a function on the open log, for setup that no command offers."""

    def run(action: Callable[[Log], Awaitable[object]]) -> None:
        async def run_on_log() -> None:
            async with cli.log() as log:
                await action(log)

        asyncio.run(run_on_log())

    return run


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Restore the level of the package's logger, which commands set for the whole process."""
    logger = logging.getLogger("penstock")
    level = logger.level
    yield
    logger.setLevel(level)
