"""What all requests of a process may hold together: who asks for more is refused, or waits for the others."""

from __future__ import annotations

import asyncio

import pytest

from penstock.server.ingest import budget
from penstock.server.ingest.budget import Budget
from penstock.server.problems import Problem


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
    monkeypatch.setattr(budget, "_PATIENCE_SECONDS", 0.01)
    shared = Budget(100, "answers")
    with shared.hold() as first, shared.hold() as second:
        # What is more than all may hold together has to be alone.
        await first.reach(1000)
        with pytest.raises(Problem, match="100 bytes of answers") as refused:
            await second.reach(1)
    assert (refused.value.kind, refused.value.status, shared.held) == ("overloaded", 503, 0)
