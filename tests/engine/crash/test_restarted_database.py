"""PostgreSQL goes away in mid-cycle, and comes back: the query goes on by itself."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from penstock.core.errors import Conflict
from penstock.core.settings import Settings
from penstock.db.embedded import server as embedded
from penstock.db.embedded.postmaster import USER
from penstock.db.embedded.server import EmbeddedPostgres
from penstock.engine.worker.spark_task import worker_connection
from tests.engine.crash.orders import QUERY, Orders, ask, committed, eventually, fence, stream
from tests.servers import Server


def kill_server(data_dir: Path) -> None:
    """``kill -9``: its children notice."""
    pid = embedded.status(data_dir).pid
    assert pid is not None
    postmaster = psutil.Process(pid)
    children = postmaster.children(recursive=True)
    postmaster.kill()
    psutil.wait_procs(children, timeout=60)


def stop_immediately(data_dir: Path) -> None:
    """Without a checkpoint, as when the machine loses its power; what is written without waiting is lost."""
    pid = embedded.status(data_dir).pid
    assert pid is not None
    postmaster = psutil.Process(pid)
    subprocess.run(["kill", "-QUIT", str(pid)], check=True)
    psutil.wait_procs([postmaster], timeout=60)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark")
def test_a_query_goes_on_when_postgresql_is_killed_in_mid_cycle(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as server, Orders(server.url) as orders:
        url = server.url
        orders.push(300)
        query = stream().start(QUERY, settings=Settings(database_url=url), interval_seconds=0, lease_seconds=1)
        try:
            for end in (kill_server, stop_immediately, kill_server):
                before = committed(url)
                with orders.pushing():
                    eventually(lambda before=before: committed(url) > before, what="a cycle before")  # type: ignore[misc]
                    eventually(lambda: ask(url, "SELECT count(*) FROM penstock.cycles WHERE committed_at IS NULL"))
                    end(data_dir)
                    server.start()
                    before = committed(url)
                    eventually(lambda before=before: committed(url) > before, what="a cycle after")  # type: ignore[misc]
            # One event at a time: the smallest cycles are the first to be blamed on their events.
            for _ in range(3):
                orders.push(1)
                eventually(lambda: orders.counted() >= orders.count)
            orders.check()
            assert query.is_running
        finally:
            query.stop()


def open_windows(url: str) -> int:
    return int(ask(url, f"SELECT count(*) FROM penstock_live.{QUERY}"))  # noqa: S608 - a name of this test


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark")
def test_stop_with_flush_after_a_crash_of_postgresql_closes_all_windows(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as server, Orders(server.url) as orders, ThreadPoolExecutor() as executor:
        url = server.url
        for end, waits in ((kill_server, True), (kill_server, False), (stop_immediately, True)):
            orders.push_last_window()
            query = stream().start(QUERY, settings=Settings(database_url=url), interval_seconds=0, lease_seconds=1)
            eventually(lambda: orders.counted() == orders.count)
            assert open_windows(url)
            end(data_dir)
            if waits:
                eventually(lambda query=query: query.status.error is not None)  # type: ignore[misc]
            stopped = executor.submit(query.stop, flush=True)
            server.start()
            stopped.result()
            assert open_windows(url) == 0
        assert orders.result("WHERE NOT is_open") == orders.pushed


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark")
def test_stop_with_flush_raises_if_postgresql_stays_away(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as server, Orders(server.url) as orders:
        orders.push(100)
        settings = Settings(database_url=server.url, retry_seconds=1)
        query = stream().start(QUERY, settings=settings, interval_seconds=0, lease_seconds=1)
        eventually(lambda: orders.counted() == orders.count)
        kill_server(data_dir)
        eventually(lambda: query.status.error is not None)
        with pytest.raises(Conflict, match="stopped with open windows"):
            query.stop(flush=True, flush_seconds=1)
        server.start()
        assert open_windows(server.url)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark")
def test_an_event_is_not_blamed_for_a_database_that_has_no_connection_to_spare(pg18: Server, database_url: str) -> None:
    name = str(conninfo_to_dict(database_url)["dbname"])

    def limit(connections: int) -> None:
        text = sql.SQL("ALTER DATABASE {} CONNECTION LIMIT {}")
        admin.execute(text.format(sql.Identifier(name), sql.Literal(connections)))

    with Orders(database_url) as orders, pg18.superuser() as admin:
        orders.push(100)
        query = stream().start(QUERY, settings=Settings(database_url=database_url), interval_seconds=0, lease_seconds=1)
        try:
            eventually(lambda: orders.counted() == orders.count)
            limit(0)
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock worker'"
            admin.execute(cut)
            orders.push(1)
            eventually(lambda: query.status.error is not None)
            known = fence(pg18.url(name, USER))
            eventually(lambda: fence(pg18.url(name, USER)) > known, what="it tries again")
            limit(-1)
            orders.check()
        finally:
            query.stop()


def test_a_worker_notices_that_its_connection_was_cut(database_url: str) -> None:
    mine = worker_connection(database_url).execute("SELECT pg_backend_pid()").fetchone()
    assert mine is not None
    ask(database_url, "SELECT pg_terminate_backend(%s)", mine[0])

    def is_gone() -> bool:
        return not ask(database_url, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", mine[0])

    eventually(is_gone)
    assert worker_connection(database_url).execute("SELECT 1").fetchone() == (1,)
    worker_connection(database_url).close()
