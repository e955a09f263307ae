"""Callables over events: one that is called again is given what it was given the first time."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from penstock.engine.callables import Batch, Item, run_steps
from penstock.stream.context import Context
from penstock.stream.steps import Call, Filter, Map, Retries, Step

AT_ONCE = Retries(3, 0.0, 0.0)


def after(steps: list[Step], *events: Any) -> Batch:
    lines = [json.dumps(event) for event in events]
    batch = Batch(
        "q",
        [Item(place, event) for place, event in enumerate(events)],
        lambda place: (1, place),
        lambda place: {},
        again=lambda place: json.loads(lines[place]),
    )
    run_steps(steps, batch)
    return batch


def doubling(event: dict[str, Any], ctx: Context) -> Any:
    """Changes the event before it fails, twice."""
    event["amounts"].append(event.pop("amount") * 2)
    if ctx.attempt < 2:
        raise ConnectionError("not yet")
    return event


async def doubling_aside(event: dict[str, Any], ctx: Context) -> dict[str, Any]:
    doubling(event, ctx)
    return {"is_looked_up": True}


@pytest.mark.parametrize(
    ("step", "added"),
    [
        (Map("step", doubling, None, AT_ONCE), {}),
        (Filter("step", doubling, AT_ONCE), {}),
        (Call("step", doubling_aside, 4, None, AT_ONCE), {"is_looked_up": True}),
    ],
)
@pytest.mark.parametrize("comes_first", [True, False])
def test_an_event_that_was_changed_before_an_error_is_as_it_was_when_it_is_tried_again(
    step: Step, added: dict[str, Any], comes_first: bool
) -> None:
    steps = [step] if comes_first else [Map("before", lambda event: event), step]
    batch = after(steps, {"amount": 1, "amounts": []}, {"amount": 5, "amounts": [0]})

    assert not batch.failures
    assert [item.value for item in batch.items] == [{"amounts": [2], **added}, {"amounts": [0, 10], **added}]


def test_what_one_callable_hands_to_the_next_may_be_anything_also_when_that_is_tried_again() -> None:
    def dated(event: dict[str, Any]) -> Any:
        return {"day": date(2024, 2, event["day"]), "then": lambda: event["day"]}

    def late(event: dict[str, Any], ctx: Context) -> Any:
        if ctx.attempt == 0:
            raise ConnectionError("not yet")
        return {"day": event["day"].isoformat(), "then": event["then"]()}

    batch = after([Map("dated", dated, None, AT_ONCE), Map("late", late, None, AT_ONCE)], {"day": 29})
    assert [item.value for item in batch.items] == [{"day": "2024-02-29", "then": 29}]


def test_the_last_error_of_an_event_is_the_one_that_it_began_with() -> None:
    def taking(event: dict[str, Any]) -> Any:
        return {"half": 1 / event.pop("amount")}

    (failure,) = after([Map("taking", taking, None, AT_ONCE)], {"amount": 0}).failures
    assert (failure.error, failure.attempts) == ("ZeroDivisionError: division by zero", 4)
