"""A driver that is paused loses the query to a standby, and cannot commit when it wakes up."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.engine.crash.drivers import Driver
from tests.engine.crash.orders import Orders, ask, committed, eventually, fence, rows_of


def commits_by(url: str, fence: int) -> int:
    return int(ask(url, "SELECT count(*) FROM penstock.cycles WHERE fence = %s AND committed_at IS NOT NULL", fence))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("moment", ["paused before its transaction", "paused before commit"])
def test_a_paused_driver_is_followed_by_the_standby_and_becomes_the_standby(
    database_url: str, tmp_path: Path, moment: str
) -> None:
    url = database_url
    with (
        Orders(url) as orders,
        Driver(url, tmp_path / "first.log", fault=[moment, 3]) as first,
    ):
        orders.push(300)
        eventually(lambda: committed(url) >= 1, what=first.text())
        with Driver(url, tmp_path / "second.log") as second:
            second.wait_until_logged("state: standby")
            its_fence = fence(url)
            with orders.pushing():
                first.wait_until_paused()
                before = commits_by(url, its_fence)
                eventually(lambda: fence(url) != its_fence, what=second.text())
                successor = fence(url)
                eventually(lambda: commits_by(url, successor) > 0, what=second.text())
                first.resume()
                eventually(lambda: first.states()[-1] == "standby", what=first.text())
            assert commits_by(url, its_fence) == before
            orders.check()
            assert fence(url) == successor


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_driver_whose_jvm_stands_still_in_a_cycle_loses_the_query(database_url: str, tmp_path: Path) -> None:
    url = database_url
    with Orders(url) as orders, Driver(url, tmp_path / "first.log") as first:
        orders.push(300)
        eventually(lambda: committed(url) >= 1, what=first.text())
        with Driver(url, tmp_path / "second.log") as second:
            second.wait_until_logged("state: standby")
            its_fence = fence(url)
            with orders.pushing():
                eventually(lambda: ask(url, "SELECT count(*) FROM penstock.cycles WHERE committed_at IS NULL"))
                first.jvm.suspend()
                eventually(lambda: fence(url) != its_fence, what=second.text())
                eventually(lambda: commits_by(url, fence(url)) > 0, what=second.text())
                first.jvm.resume()
                eventually(lambda: first.states()[-1] == "standby", what=first.text())
            orders.check()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_driver_whose_jvm_is_killed_ends_and_says_so(database_url: str, tmp_path: Path) -> None:
    url = database_url
    with Orders(url) as orders:
        orders.push(300)
        with Driver(url, tmp_path / "first.log") as first:
            eventually(lambda: committed(url) >= 1, what=first.text())
            first.wait_until_logged("state: running")
            first.jvm.kill()
            assert first.process.wait(120) == 1, first.text()
            assert "SparkFailure: the JVM that Spark runs in has ended" in first.text()
        with Driver(url, tmp_path / "second.log"):
            orders.check()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_sigterm_ends_the_cycle_and_hands_the_query_over_at_once(database_url: str, tmp_path: Path) -> None:
    url = database_url
    lease = 120  # longer than the test waits for the second driver
    with Orders(url) as orders, Driver(url, tmp_path / "first.log", lease_seconds=lease) as first:
        orders.push(300)
        eventually(lambda: committed(url) >= 1, what=first.text())
        with Driver(url, tmp_path / "second.log", lease_seconds=lease) as second:
            second.wait_until_logged("state: standby")
            its_fence = fence(url)
            with orders.pushing():
                # In mid-cycle: one is planned and not committed.
                open_cycles = "SELECT count(*) FROM penstock.cycles WHERE committed_at IS NULL"
                eventually(lambda: ask(url, open_cycles))
                first.terminate()
                assert first.process.wait(60) == 0, first.text()
                eventually(lambda: fence(url) != its_fence, timeout=lease / 2, what=second.text())
                eventually(lambda: commits_by(url, fence(url)) > 0, what=second.text())
            left = rows_of(url, "SELECT error FROM penstock.cycles WHERE error IS NOT NULL")
            assert not left
            orders.check()
            second.terminate()
            assert second.process.wait(60) == 0
            assert ask(url, "SELECT lease_until < clock_timestamp() AND driver IS NULL FROM penstock.queries")
            assert not [p for p in psutil.process_iter() if p.ppid() in (first.pid, second.pid)]
