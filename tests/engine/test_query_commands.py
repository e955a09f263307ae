"""Queries are paused, resumed and stopped from another process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from penstock.core.errors import Conflict
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.engine import query_commands
from tests.conditions import eventually
from tests.engine.pipelines import T0, Bench, counted, drivers_lost, stream

Command = Callable[[Database, str], Awaitable[None]]


def send(command: Command, settings: Settings) -> None:
    async def run() -> None:
        async with Database(settings) as database:
            await command(database, "q")

    asyncio.run(run())


def count_cycles(bench: Bench) -> int:
    return int(bench.ask("SELECT count(*) FROM penstock.cycles"))


def test_a_paused_query_plans_no_cycles_keeps_its_lease_and_resumes(bench: Bench) -> None:
    bench.queue()
    with bench.running(counted(stream()).to("totals")) as query:
        bench.push([("k", {"ts": T0, "amount": 1})])
        eventually(lambda: query.status.events_in == 1, "the first event")
        send(query_commands.pause, bench.settings)
        eventually(lambda: query.status.paused, "the pause")
        bench.push([("k", {"ts": T0, "amount": 1})])
        before, fence = count_cycles(bench), bench.ask("SELECT fence FROM penstock.queries")
        until = bench.ask("SELECT lease_until + interval '1 second' FROM penstock.queries")
        eventually(lambda: bench.ask("SELECT lease_until > %s FROM penstock.queries", until), "the lease is renewed")
        assert (count_cycles(bench), query.status.events_in) == (before, 1)
        send(query_commands.resume, bench.settings)
        eventually(lambda: query.status.events_in == 2, "the second event")
        eventually(lambda: not query.status.paused, "the end of the pause")
        assert bench.ask("SELECT fence FROM penstock.queries") == fence


def test_a_stop_that_cannot_close_the_windows_raises(bench: Bench) -> None:
    bench.queue()
    bench.push([("k", {"ts": T0, "amount": 1})])
    query = counted(stream()).to("totals").start("q", settings=bench.settings, interval_seconds=0.0)
    eventually(lambda: query.status.events_in == 1, "the first event")
    with drivers_lost(random.Random(0), 2), pytest.raises(Conflict, match=r"open windows.*lost before the commit"):
        query.stop(flush=True)
    assert [row["n"] for row in bench.live()] == [1]


def test_stop_ends_the_driver_and_its_standby_but_not_later_starts(bench: Bench) -> None:
    bench.queue()
    made = counted(stream()).to("totals")
    bench.push([("k", {"ts": T0, "amount": 1})])
    with bench.running(made) as query, bench.running(made) as standby:
        eventually(lambda: query.status.events_in == 1 and standby.status.state == "standby", "a driver and a standby")
        send(query_commands.pause, bench.settings)
        send(query_commands.stop, bench.settings)
        assert query.wait(60)
        assert standby.wait(60)
        assert standby.status.cycles == 0
    assert bench.ask("SELECT driver IS NULL AND lease_until < clock_timestamp() FROM penstock.queries")
    assert [row["n"] for row in bench.live()] == [1], "the windows stay open"

    bench.push([("k", {"ts": T0, "amount": 1})])
    with bench.running(made) as query:
        eventually(lambda: query.status.events_in == 1, "the second event")
    assert [row["n"] for row in bench.live()] == [2]
