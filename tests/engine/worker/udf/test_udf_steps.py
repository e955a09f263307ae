"""User-defined functions run over events: retries get the original event, and failures affect only their event."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import date
from typing import Any

import pytest

from penstock.engine.worker.task_reports import EventRef
from penstock.engine.worker.udf.udf_batch import UdfBatch, UdfItem
from penstock.engine.worker.udf.udf_steps import run_udf_steps
from penstock.stream.context import Context
from penstock.stream.steps import EnrichCall, FilterStep, MapStep, Retries, Step

WITHOUT_PAUSE = Retries(3, 0.0, 0.0)


def run(steps: list[Step], *events: Any) -> UdfBatch:
    lines = [json.dumps(event) for event in events]
    batch = UdfBatch(
        "q",
        [UdfItem(index, event) for index, event in enumerate(events)],
        lambda index: EventRef(1, index),
        lambda index: {},
        reload_event=lambda index: json.loads(lines[index]),
    )
    run_udf_steps(steps, batch)
    return batch


def change_and_fail(event: dict[str, Any], ctx: Context) -> Any:
    """Changes the event and fails, twice; then succeeds."""
    event["amounts"].append(event.pop("amount") * 2)
    if ctx.attempt < 2:
        raise ConnectionError("not yet")
    return event


async def change_and_fail_async(event: dict[str, Any], ctx: Context) -> dict[str, Any]:
    change_and_fail(event, ctx)
    return {"is_looked_up": True}


@pytest.mark.parametrize(
    ("step", "added"),
    [
        (MapStep("step", change_and_fail, None, WITHOUT_PAUSE), {}),
        (FilterStep("step", change_and_fail, WITHOUT_PAUSE), {}),
        (EnrichCall("step", change_and_fail_async, 4, None, WITHOUT_PAUSE), {"is_looked_up": True}),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_retry_gets_the_event_without_the_changes_of_the_failed_attempt(
    step: Step, added: dict[str, Any], is_first: bool
) -> None:
    steps = [step] if is_first else [MapStep("before", lambda event: event), step]
    batch = run(steps, {"amount": 1, "amounts": []}, {"amount": 5, "amounts": [0]})

    assert not batch.failures
    assert [item.value for item in batch.items] == [{"amounts": [2], **added}, {"amounts": [0, 10], **added}]


def test_functions_can_pass_values_that_are_not_json_to_each_other() -> None:
    def add_date(event: dict[str, Any]) -> Any:
        return {"day": date(2024, 2, event["day"]), "then": lambda: event["day"]}

    def fail_once(event: dict[str, Any], ctx: Context) -> Any:
        if ctx.attempt == 0:
            raise ConnectionError("not yet")
        return {"day": event["day"].isoformat(), "then": event["then"]()}

    batch = run(
        [MapStep("add date", add_date, None, WITHOUT_PAUSE), MapStep("fail once", fail_once, None, WITHOUT_PAUSE)],
        {"day": 29},
    )
    assert [item.value for item in batch.items] == [{"day": "2024-02-29", "then": 29}]


def test_a_failure_has_the_error_and_the_number_of_attempts() -> None:
    def divide(event: dict[str, Any]) -> Any:
        return {"half": 1 / event.pop("amount")}

    (failure,) = run([MapStep("divide", divide, None, WITHOUT_PAUSE)], {"amount": 0}).failures
    assert (failure.error, failure.attempts) == ("ZeroDivisionError: division by zero", 4)


def test_a_cancelled_call_and_an_abandoned_thread_fail_only_their_event() -> None:
    finish = threading.Event()

    async def look_up(event: dict[str, Any]) -> dict[str, Any]:
        if event["case"] == "cancelled":
            raise asyncio.CancelledError
        if event["case"] == "blocked thread":
            await asyncio.to_thread(finish.wait)
        return {"found": True}

    def exit_process(event: dict[str, Any]) -> dict[str, Any]:
        raise SystemExit(3)

    retries = Retries(1, 0.0, 0.2)
    try:
        batch = run(
            [EnrichCall("step", look_up, 4, None, retries)],
            *({"case": case} for case in ("", "cancelled", "blocked thread")),
        )
    finally:
        finish.set()
    assert [item.value for item in batch.items] == [{"case": "", "found": True}]
    failed = [(f.offset, f.error.partition(":")[0], f.attempts) for f in batch.failures]
    assert failed == [(1, "CancelledError", 2), (2, "TimeoutError", 2)]

    (failure,) = run([EnrichCall("step", exit_process, 4, None, retries)], {}).failures
    assert failure.error == "RuntimeError: SystemExit"


def test_the_traceback_of_a_failure_starts_at_the_user_function() -> None:
    def fail(event: dict[str, Any]) -> Any:
        raise ValueError("no")

    (failure,) = run([MapStep("step", fail, None, Retries(0, 0.0, 0.0))], {}).failures
    assert failure.traceback is not None
    first_frame = failure.traceback.splitlines()[1]
    assert __file__ in first_frame
    assert "penstock/engine" not in failure.traceback
