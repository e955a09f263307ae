"""Queries that are paused, resumed and stopped by somebody else than who runs them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from penstock.core.errors import Conflict
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.engine import commands
from tests.engine.pipelines import T0, Bench, counted, drivers_lost, eventually, stream

Wish = Callable[[Database, str], Awaitable[None]]


def ask(wish: Wish, settings: Settings) -> None:
    async def said() -> None:
        async with Database(settings) as database:
            await wish(database, "q")

    asyncio.run(said())


def planned(bench: Bench) -> int:
    return int(bench.ask("SELECT count(*) FROM penstock.cycles"))


def test_a_paused_query_plans_nothing_keeps_its_lease_and_goes_on(bench: Bench) -> None:
    bench.queue()
    with bench.running(counted(stream()).to("totals")) as query:
        bench.push([("k", {"ts": T0, "amount": 1})])
        eventually(lambda: query.status.events_in == 1, "the first event")
        ask(commands.pause, bench.settings)
        eventually(lambda: query.status.paused, "the pause")
        bench.push([("k", {"ts": T0, "amount": 1})])
        before, fence = planned(bench), bench.ask("SELECT fence FROM penstock.queries")
        until = bench.ask("SELECT lease_until + interval '1 second' FROM penstock.queries")
        eventually(lambda: bench.ask("SELECT lease_until > %s FROM penstock.queries", until), "a lease that is kept")
        assert (planned(bench), query.status.events_in) == (before, 1)
        ask(commands.resume, bench.settings)
        eventually(lambda: query.status.events_in == 2, "the second event")
        # It is looked at every now and then, and not by those who count events.
        eventually(lambda: not query.status.paused, "the end of the pause")
        assert bench.ask("SELECT fence FROM penstock.queries") == fence


def test_a_stop_that_could_not_close_the_windows_says_so(bench: Bench) -> None:
    bench.queue()
    bench.push([("k", {"ts": T0, "amount": 1})])
    query = counted(stream()).to("totals").start("q", settings=bench.settings, interval_seconds=0.0)
    eventually(lambda: query.status.events_in == 1, "the first event")
    with drivers_lost(random.Random(0), 2), pytest.raises(Conflict, match=r"windows open.*lost before the commit"):
        query.stop(flush=True)
    assert [row["n"] for row in bench.live()] == [1]


def test_a_stopped_query_ends_with_its_standby_and_runs_when_it_is_started_again(bench: Bench) -> None:
    bench.queue()
    made = counted(stream()).to("totals")
    bench.push([("k", {"ts": T0, "amount": 1})])
    with bench.running(made) as query, bench.running(made) as standby:
        eventually(lambda: query.status.events_in == 1 and standby.status.state == "standby", "both at their places")
        ask(commands.pause, bench.settings)
        ask(commands.stop, bench.settings)
        assert query.wait(60)
        assert standby.wait(60)
        assert standby.status.cycles == 0
    assert bench.ask("SELECT driver IS NULL AND lease_until < clock_timestamp() FROM penstock.queries")
    assert [row["n"] for row in bench.live()] == [1], "its windows stay open"

    bench.push([("k", {"ts": T0, "amount": 1})])
    with bench.running(made) as query:
        eventually(lambda: query.status.events_in == 1, "the second event")
    assert [row["n"] for row in bench.live()] == [2]
