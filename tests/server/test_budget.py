"""What all requests of a process may hold together: who asks for more is refused, or waits for the others."""

from __future__ import annotations

import asyncio

import pytest

from penstock.server.http.errors import Problem
from penstock.server.ingest import memory_budget
from penstock.server.ingest.memory_budget import Budget


async def test_who_waits_goes_on_when_others_let_go() -> None:
    shared = Budget(100)
    with shared.hold() as first, shared.hold() as second:
        await first.reach(60)
        waiting = asyncio.create_task(second.reach(60))
        await asyncio.sleep(0)
        assert not waiting.done()
        first.keep(40)
        await waiting
        assert shared.held == 100
        await second.reach(50)
        assert shared.held == 100
    assert shared.held == 0


async def test_who_waits_too_long_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "_PATIENCE_SECONDS", 0.01)
    shared = Budget(100, "answers")
    with shared.hold() as first, shared.hold() as second:
        # What is more than all may hold together has to be alone.
        await first.reach(1000)
        with pytest.raises(Problem, match="100 bytes of answers") as refused:
            await second.reach(1)
    assert (refused.value.kind, refused.value.status, shared.held) == ("overloaded", 503, 0)


async def test_who_came_first_goes_on_first() -> None:
    shared = Budget(100)
    served: list[int] = []

    async def wait(number: int, size: int) -> None:
        with shared.hold() as mine:
            await mine.reach(size)
            served.append(number)

    with shared.hold() as first:
        await first.reach(100)
        # There is room for the small one earlier than for the large one that came before it.
        waiting = [asyncio.create_task(wait(n, size)) for n, size in enumerate((90, 10, 50))]
        await asyncio.sleep(0)
        first.keep(50)
        await asyncio.sleep(0)
        assert served == []
    await asyncio.gather(*waiting)
    assert (served, shared.held) == ([0, 1, 2], 0)


@pytest.mark.parametrize("let_in_before", [False, True])
async def test_who_gives_up_waiting_leaves_his_place_to_the_next(let_in_before: bool) -> None:
    shared = Budget(100)
    with shared.hold() as first, shared.hold() as second, shared.hold() as third:
        await first.reach(60)
        waiting = [asyncio.create_task(second.reach(50)), asyncio.create_task(third.reach(40))]
        await asyncio.sleep(0)
        if let_in_before:
            first.keep(0)
        waiting[0].cancel()
        await asyncio.wait(waiting, timeout=1)
        assert [task.cancelled() for task in waiting] == [True, False]
        assert waiting[1].done()
        assert shared.held == (40 if let_in_before else 100)
    assert shared.held == 0


async def test_those_who_hold_much_leave_a_part_to_those_who_need_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "_PATIENCE_SECONDS", 0.01)
    shared = Budget(100, "answers", 5)
    with shared.hold() as large, shared.hold() as more, shared.hold() as small:
        await large.reach(5)
        assert large.stretch(1000) == 75
        assert large.stretch(1000) == 75
        with pytest.raises(Problem, match="answers"):
            await more.reach(6)
        await small.reach(5)
        assert small.stretch(50) == 5
        large.keep(0)
        assert small.stretch(50) == 50
        # What is there is held, also if it is more than there is room for.
        small.keep(200)
        assert shared.held == 200
    assert shared.held == 0


async def test_who_waits_for_much_keeps_nobody_waiting_who_needs_little() -> None:
    shared = Budget(100, "answers", 5)
    with shared.hold() as first, shared.hold() as large, shared.hold() as small:
        await first.reach(70)
        waiting = asyncio.create_task(large.reach(20))
        await asyncio.sleep(0)
        await small.reach(5)
        # Nor does anybody take more than he needs meanwhile.
        assert small.stretch(10) == 5
        first.keep(0)
        await waiting
        assert shared.held == 25
