"""The sinks that a stream names, and the hook through which ``penstock.sinks`` runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from penstock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.core.settings import Settings
    from penstock.stream.definition import Definition

SinkRunner: TypeAlias = "Callable[[Definition, Settings], AbstractContextManager[None]]"

_runners: list[SinkRunner] = []


class StreamSink(Protocol):
    """The part of ``penstock.sinks.Sink`` that a stream uses."""

    name: str

    async def write(self, events: Any) -> None:
        """Write events."""


@dataclass(frozen=True)
class SinkBinding:
    """A sink on the queue of a stream's results, with its options; ``group`` is the sink's name by default."""

    queue: str
    sink: StreamSink
    group: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def set_sink_runner(runner: SinkRunner) -> None:
    """Set the function that runs the sinks of a stream; ``penstock.sinks`` calls this when it is imported."""
    _runners[:] = [runner]


def run_stream_sinks(stream: Definition, settings: Settings) -> AbstractContextManager[None]:
    """Run the sinks of a stream while the block runs, and write its last results to them at the end."""
    if not stream.sink_bindings:
        return nullcontext()
    if not _runners:
        raise InvalidRequest(
            f"a sink is an instance of penstock.sinks.Sink, not {type(stream.sink_bindings[0].sink).__name__}"
        )
    return _runners[0](stream, settings)
