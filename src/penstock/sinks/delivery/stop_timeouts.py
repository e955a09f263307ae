"""How long the sinks may take after a stop: to write the remaining results, and to end."""

from __future__ import annotations

from dataclasses import dataclass

#: How long a sink may take to stop before its task is cancelled.
STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class StopTimes:
    """The time limits of the end of a stream, in seconds."""

    #: After the query, the sinks write the remaining results until they are idle for this long.
    idle: float = 0.5
    #: The limit of writing the remaining results.
    drain: float = 15.0
    #: The limit of one sink's stop; then it is cancelled.
    stop: float = STOP_SECONDS
    #: The limit of the whole stop. A sink that hangs in a call is left behind after that.
    total: float = 40.0
