"""The sinks that streams name, and who runs them. They are in a room above, and say how when they are loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from penstock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.core.settings import Settings
    from penstock.stream.definition import Definition

Runner: TypeAlias = "Callable[[Definition, Settings], AbstractContextManager[None]]"

_runners: list[Runner] = []


class Outlet(Protocol):
    """A sink, as far as a stream has to know it."""

    name: str

    async def write(self, events: Any) -> None:
        """Take events."""


@dataclass(frozen=True)
class Flow:
    """A sink on a queue, at its own pace; as a group of its own name, unless it is given another."""

    queue: str
    sink: Outlet
    group: str | None = None
    pace: Mapping[str, Any] = field(default_factory=dict)


def run_sinks_with(runner: Runner) -> None:
    """Say how the sinks of a stream are run while a block lasts."""
    _runners[:] = [runner]


def sinks_running(stream: Definition, settings: Settings) -> AbstractContextManager[None]:
    """The sinks of a stream at work, while the block lasts; they end with what it has brought them."""
    if not stream.outlets:
        return nullcontext()
    if not _runners:
        raise InvalidRequest(
            f"a sink is an instance of penstock.sinks.Sink, not {type(stream.outlets[0].sink).__name__}"
        )
    return _runners[0](stream, settings)
