"""Checks of a whole stream: whether it is complete, and whether it can be joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import InvalidRequest
from penstock.stream.steps import ForeachStep
from penstock.stream.windows import SessionWindow

if TYPE_CHECKING:
    from penstock.stream.definition import Definition


def check_complete(stream: Definition) -> None:
    """Raise InvalidRequest if a part of the stream is missing."""
    if stream.view is not None:
        if stream.key is not None:
            raise InvalidRequest("key_by is the key of an aggregate: add .aggregate({...})")
        return
    if stream.windows and not stream.aggregates and stream.fold is None:
        raise InvalidRequest("the stream has a window and nothing to compute in it: add .aggregate({...})")
    if stream.fold is not None and any(isinstance(window, SessionWindow) for window in stream.windows):
        raise InvalidRequest(
            "two sessions can merge into one, and reduce cannot merge their values: use .aggregate({...}), or "
            "another window"
        )
    if stream.gates and stream.sink is None:
        raise InvalidRequest("the events that the gate admits need a queue: end the stream with .to(queue)")
    if not stream.windows and stream.key is not None:
        raise InvalidRequest("key_by is the key of windows: add a window, or use .to(queue, partition=...)")
    if stream.joined is not None and stream.sink is None:
        raise InvalidRequest("pairs go to a queue: end the stream with .to(queue)")
    if not stream.windows and stream.sink is None and not any(isinstance(step, ForeachStep) for step in stream.steps):
        raise InvalidRequest("the stream goes nowhere: end it with .to(queue), .foreach(f) or a window")


def check_no_join(stream: Definition, what: str) -> None:
    """Raise InvalidRequest if the stream is a join, which cannot have ``what`` after it."""
    if stream.joined is not None:
        raise InvalidRequest(
            f"{what} cannot be in a stream with a join: end this one with .to(queue), and let another read it"
        )


def check_joinable(left: Definition, right: Definition) -> None:
    for side in (left, right):
        check_no_join(side, "a second join")
        if side.windows or side.key is not None or side.gates or side.sink is not None:
            raise InvalidRequest(
                "a join takes streams of events, without windows, keys, gates and .to(...): let those write to a "
                "queue, and join that queue"
            )
    shared = sorted(set(left.sources) & set(right.sources))
    if shared:
        raise InvalidRequest(
            f"both sides read {', '.join(map(repr, shared))}: copy the events of one side into a queue of its own "
            f"first, Stream.from_({shared[0]!r}).to('{shared[0]}-copy')"
        )
