"""The order of a stream's methods: what may come after a window, a gate, a key, a join or a view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import InvalidRequest
from penstock.stream.checks.completeness import check_no_join
from penstock.stream.steps import FlatMapStep, MapStep, SqlStep, Step, runs_in_python
from penstock.stream.windows import SessionWindow, Window

if TYPE_CHECKING:
    from penstock.stream.definition import Definition


def check_step_position(stream: Definition, step: Step) -> None:
    """Raise InvalidRequest if the step cannot follow what the stream has."""
    _refuse_after_gate(stream, step.name)
    _refuse_after_view(stream, step.name)
    if stream.joined is not None and runs_in_python(step):
        raise InvalidRequest(
            f"{step.name} is a function, and the steps after a join are SQL: put it before the join, or into a "
            "stream that reads the queue of .to(...)"
        )
    if stream.windows or stream.sink is not None:
        raise InvalidRequest(
            f"{step.name} comes after the window or after .to(...): put it before, or read the result's queue "
            "with another stream"
        )
    if stream.key is not None and isinstance(step, MapStep | FlatMapStep | SqlStep):
        raise InvalidRequest(f"{step.name} changes the events that key_by looks at: put key_by after it")
    if any(other.name == step.name for other in stream.steps):
        raise InvalidRequest(f"two steps are called {step.name!r}; give each a name of its own")


def check_gate_position(stream: Definition) -> None:
    """Raise InvalidRequest if a gate cannot follow what the stream has."""
    _refuse_after_view(stream, "a gate")
    check_no_join(stream, "a gate")
    if stream.windows:
        raise InvalidRequest(
            "a stream has a gate or a window, because a gate admits part of a cycle and a window counts all of "
            "it: end this one with .to(queue), and gate or aggregate that queue with another"
        )
    if stream.sink is not None:
        raise InvalidRequest("gate comes before .to(...): move it there")
    if stream.key is not None:
        raise InvalidRequest(
            "a gate has one budget for each key of the queue, so key_by cannot give it another key: let a stream "
            "in front repartition, Stream.from_(...).to('by-tenant', partition='tenant'), into a queue that was "
            "created by 'key', and gate that queue"
        )
    if len(stream.sources) > 1:
        raise InvalidRequest(
            "a gate has one budget for each key of one queue: bring the queues together with a stream "
            "in front, Stream.from_('a', 'b').to('all'), and gate that queue"
        )


def check_key_position(stream: Definition) -> None:
    """Raise InvalidRequest if a key_by cannot follow what the stream has."""
    _refuse_after_gate(stream, "key_by", fits_before=False)
    check_no_join(stream, "key_by")
    if stream.windows or stream.sink is not None:
        raise InvalidRequest("key_by comes before the window and before .to(...): move it there")
    if stream.key is not None:
        raise InvalidRequest("the stream has a key_by already; for several fields write key_by('country', 'city')")


def check_window_position(stream: Definition, window: Window) -> None:
    """Raise InvalidRequest if the window cannot follow what the stream has."""
    _refuse_after_gate(stream, "a window", fits_before=False)
    _refuse_after_view(stream, "a window")
    check_no_join(stream, "a window")
    if stream.aggregates or stream.fold is not None or stream.sink is not None:
        raise InvalidRequest("a window comes before .aggregate(...), .reduce(...) and .to(...): move it there")
    if stream.windows and any(isinstance(each, SessionWindow) for each in (*stream.windows, window)):
        raise InvalidRequest("session windows do not mix with others: use two streams")
    if window in stream.windows:
        raise InvalidRequest(f"the window ({window.describe()}) is there twice: leave one out")


def check_aggregate_position(stream: Definition, what: str) -> None:
    if not stream.windows:
        raise InvalidRequest(f"{what} needs a window before it, such as .window_tumbling(seconds=5)")
    if stream.aggregates or stream.fold is not None:
        raise InvalidRequest(f"{what}: the stream aggregates already; put everything into one .aggregate({{...}})")


def _refuse_after_gate(stream: Definition, what: str, *, fits_before: bool = True) -> None:
    if stream.gates:
        place = (
            "put it before the gate, or into another stream that reads the queue of .to(...)"
            if fits_before
            else "end this stream with .to(queue), and put it into another stream that reads that queue"
        )
        raise InvalidRequest(
            f"{what} comes after the gate, and would see events before the gate has admitted them: {place}"
        )


def _refuse_after_view(stream: Definition, what: str) -> None:
    if stream.view is not None:
        raise InvalidRequest(
            f"{what} comes after a view, whose rows change: put it before, or read the changes of the view, "
            ".materialize(name, changes=queue), with another stream"
        )
