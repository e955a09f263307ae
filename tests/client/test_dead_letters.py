"""Dead letters through the client, against the database and through a server."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Penstock
from penstock.client.dead_letters import DeadLetterHandle, DeadLetterMapping
from penstock.core.errors import InvalidRequest

SQL = "* EXCEPT (prise), cast(prise AS decimal) AS price"


async def _bury(q: Penstock, count: int = 3) -> DeadLetterHandle:
    queue = q.queue("orders").group("billing")
    await queue.create()
    await queue.push([{"data": {"n": n, "prise": f"{n}.50"}, "key": "ada"} for n in range(count)])
    await q.ack(await queue.batch(count).pop(), "dead_letter", error="KeyError: 'price'")
    return queue.dlq("billing")


def _rename(order: dict[str, Any]) -> dict[str, Any]:
    order["price"] = float(order.pop("prise"))
    return order


@pytest.mark.parametrize("mapping", [SQL, _rename], ids=["sql", "python"])
async def test_a_mapping_is_previewed_and_then_redriven(q: Penstock, mapping: DeadLetterMapping) -> None:
    dead = await _bury(q)

    edits = await dead.preview(mapping, limit=2)
    assert [(edit.before, edit.after) for edit in edits] == [
        ({"n": 0, "prise": "0.50"}, {"n": 0, "price": 0.5}),
        ({"n": 1, "prise": "1.50"}, {"n": 1, "price": 1.5}),
    ]
    assert await dead.count() == 3

    assert (await dead.redrive(mapping=mapping, limit=2)).replayed == 2
    assert (await dead.redrive(mapping=mapping, all=True)).replayed == 1
    events = await q.queue("orders").group("billing").batch(10).pop()
    assert [event.data for event in events] == [{"n": n, "price": n + 0.5} for n in range(3)]


async def test_letters_for_which_a_function_fails_stay(q: Penstock) -> None:
    dead = await _bury(q)

    def correct(order: dict[str, Any]) -> Any:
        if order["n"] == 0:
            return None
        return {**order, "price": 1 / (order["n"] - 1)}

    problems = [edit.problem for edit in await dead.preview(correct)]
    assert problems[0] is not None
    assert "returned None" in problems[0]
    assert problems[1] is not None
    assert "ZeroDivisionError" in problems[1]
    assert problems[2] is None

    done = await dead.redrive(mapping=correct, all=True)

    assert (done.replayed, done.failed, sorted(done.problems.values())) == (1, 2, sorted(filter(None, problems)))
    assert sorted(letter.data["n"] for letter in await dead.list()) == [0, 1]


async def test_a_function_edits_more_dead_letters_than_fit_one_request(q: Penstock) -> None:
    dead = await _bury(q, 250)

    assert (await dead.redrive(mapping=_rename, all=True)).replayed == 250
    assert await dead.count() == 0


@pytest.mark.parametrize("mapping", ["foo(a) AS b", "", 7])
async def test_an_invalid_mapping_is_refused(q: Penstock, mapping: Any) -> None:
    dead = await _bury(q)
    with pytest.raises(InvalidRequest):
        await dead.preview(mapping)
    with pytest.raises(InvalidRequest):
        await dead.redrive(mapping=mapping)
    assert await dead.count() == 3


async def test_filters_by_partition_kind_and_stage(q: Penstock) -> None:
    dead = await _bury(q)

    assert await dead.count(kind="KeyError: 'price'", stage="consumer", partition="ada") == 3
    assert await dead.count(stage="parse") == 0
    assert await dead.count(partition="bob") == 0
    assert (await dead.redrive(kind="other")).replayed == 0
    assert await dead.purge(stage="consumer") == 3
