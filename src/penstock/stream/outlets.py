"""Who runs the sinks that streams name. They are in a room above this one, and say how when they are loaded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeAlias

from penstock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.core.settings import Settings
    from penstock.stream.definition import Definition

Runner: TypeAlias = "Callable[[Definition, Settings], AbstractContextManager[None]]"

_runners: list[Runner] = []


def run_sinks_with(runner: Runner) -> None:
    """Say how the sinks of a stream are run while a block lasts."""
    _runners[:] = [runner]


def sinks_running(stream: Definition, settings: Settings) -> AbstractContextManager[None]:
    """The sinks of a stream at work, while the block lasts; they end with what it has brought them."""
    if not stream.outlets:
        return nullcontext()
    if not _runners:
        raise InvalidRequest(f"a sink is an instance of penstock.sinks.Sink, not {type(stream.outlets[0]).__name__}")
    return _runners[0](stream, settings)
