"""Callables over events: one that is called again gets what it got the first time, and none hangs for ever."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from datetime import date
from typing import Any

import pytest

from penstock.engine.worker.udf import Batch, Item, run_steps
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


HANGS = {
    "a body that only runs when what it yields is asked for": """
def hangs(event):
    yield event
    time.sleep(3600)
step = FlatMap("step", hangs, None, SHORT)
""",
    "a loop that stands still": """
async def hangs(event):
    time.sleep(3600)
step = Call("step", hangs, 4, None, SHORT)
""",
    "a call that does not let itself be cancelled": """
async def hangs(event):
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:
            pass
step = Call("step", hangs, 4, None, SHORT)
""",
    "an interpreter that is held": """
def hangs(event):
    return re.match("(a+)+$", "a" * 60 + "b")
step = Filter("step", hangs, SHORT)
""",
}


def test_a_callable_that_hangs_ends_its_worker_however_it_does_so() -> None:
    def worker(hangs: str) -> str:
        return f"""
import asyncio, re, time
from penstock.engine.worker.udf import Batch, Item, run_steps
from penstock.stream.steps import Call, Filter, FlatMap, Retries
SHORT = Retries(0, 0.0, 0.2)
{hangs}
run_steps([step], Batch("q", [Item(0, {{}})], lambda place: (1, place), lambda place: {{}}))
"""

    started = {
        name: subprocess.Popen([sys.executable, "-c", worker(hangs)], stderr=subprocess.DEVNULL)
        for name, hangs in HANGS.items()
    }
    try:
        assert [name for name, process in started.items() if process.wait(60) == 0] == []
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def test_calls_that_never_wait_have_their_time_each() -> None:
    """The loop has no turn in between, and all of them together take longer than one may."""
    worker = """
import time
from penstock.engine.worker.udf import Batch, Item, run_steps
from penstock.stream.steps import Call, Retries
async def computes(event):
    time.sleep(0.02)
batch = Batch("q", [Item(n, {}) for n in range(100)], lambda place: (1, place), lambda place: {})
run_steps([Call("step", computes, 4, None, Retries(0, 0.0, 0.5))], batch)
print(len(batch.items))
"""
    done = subprocess.run([sys.executable, "-c", worker], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout == "100\n"


def test_a_call_that_gives_up_or_leaves_a_thread_behind_costs_its_event_alone() -> None:
    left = threading.Event()

    async def look_up(event: dict[str, Any]) -> dict[str, Any]:
        if event["fate"] == "gives up":
            raise asyncio.CancelledError
        if event["fate"] == "leaves a thread":
            await asyncio.to_thread(left.wait)
        return {"found": True}

    def exits(event: dict[str, Any]) -> dict[str, Any]:
        raise SystemExit(3)

    retries = Retries(1, 0.0, 0.2)
    try:
        batch = after(
            [Call("step", look_up, 4, None, retries)], *({"fate": f} for f in ("", "gives up", "leaves a thread"))
        )
    finally:
        left.set()
    assert [item.value for item in batch.items] == [{"fate": "", "found": True}]
    failed = [(f.offset, f.error.partition(":")[0], f.attempts) for f in batch.failures]
    assert failed == [(1, "CancelledError", 2), (2, "TimeoutError", 2)]

    (failure,) = after([Call("step", exits, 4, None, retries)], {}).failures
    assert failure.error == "RuntimeError: SystemExit"
