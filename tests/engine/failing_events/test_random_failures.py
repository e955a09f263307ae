"""Random steps and random failures."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock import agg
from tests.engine.failing_events.events import windowed
from tests.engine.pipelines import T0, Bench, stream

#: What happens to an event, and whether it counts; None if it is a dead letter.
_FATES: dict[str, bool | None] = {
    "pass": True,
    "dropped by Python": False,
    "dropped by SQL": False,
    "raises": None,
    "returns text": None,
    "returns another type": None,
    "has no number": None,
    "cannot be stored": None,
}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 12))])
def test_random_steps_and_fates_leave_every_event_in_one_place(bench: Bench, seed: int) -> None:
    # Spark's workers cannot import this module, and get a nested function by value.
    def decide(event: dict[str, Any]) -> Any:
        match event["fate"]:
            case "dropped by Python":
                return None
            case "raises":
                raise ValueError("bad luck")
            case "returns text":
                return "text"
            case "returns another type":
                return {**event, "amount": "much"}
        return event

    chance = random.Random(seed)
    fates = chance.choices(list(_FATES), weights=[20, 5, 5, 1, 1, 1, 0.1, 1], k=300)
    if chance.random() < 0.5:
        fates[100:160] = [chance.choice(["dropped by Python", "raises", "returns text"])] * 60
    events = [
        {
            "ts": T0,
            "amount": 1,
            "fate": fate,
            "code": "x" if fate == "has no number" else "1",
            "s": ("\0" if fate == "cannot be stored" else "a") + str(n % 3),
        }
        for n, fate in enumerate(fates)
    ]
    steps: list[Callable[[Any], Any]] = [
        lambda made: made.map(decide, name="decide", retry_limit=0),
        lambda made: made.filter("fate <> 'dropped by SQL' AND cast(code AS int) > 0"),
        lambda made: made.filter(lambda event: event["fate"] != "dropped by Python"),
    ]
    chance.shuffle(steps)
    made = stream(schema={"amount": "decimal(38,18)", "code": "string", "s": "string"})
    for add_step in steps:
        made = add_step(made)
    if chance.random() < 0.7:
        made = made.key_by("s")
    bench.queue(partitions=chance.choice([1, 3]))
    for start in range(0, len(events), 100):
        bench.push([(f"k{n % 5}", event) for n, event in enumerate(events[start : start + 100])])
    bench.run(
        windowed(made, total=agg.sum("amount"), least=agg.min("s")), max_events_per_cycle=chance.choice([70, 1000])
    )

    assert sum(row["n"] for row in bench.rows()) == fates.count("pass")
    assert sum(row["total"] for row in bench.rows()) == fates.count("pass")
    failed = Counter(fate for fate in fates if _FATES[fate] is None)
    assert Counter(letter.data["fate"] for letter in bench.letters()) == failed
