"""Looking through what is stored leaves room for those who push, and ends with whoever asked for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import psycopg
import pytest

from tests.client.conditions import soon
from tests.server.plane.speaking import Plane


@pytest.mark.parametrize("path", ["/v1/queues/{queue}/events?id=nothing", "/api/v1/messages?queue={queue}"])
def test_looks_that_take_long_keep_nobody_from_pushing_and_end_when_their_callers_leave(
    plane: Plane, queue: str, plane_url: str, path: str
) -> None:
    plane.push(queue, [1])
    address = str(plane.http.base_url) + path.format(queue=queue)

    def look() -> None:
        with suppress(httpx.TimeoutException):
            httpx.get(address, timeout=1)

    with psycopg.connect(plane_url) as holder, psycopg.connect(plane_url, autocommit=True) as watcher:
        ((table,),) = holder.execute(
            "SELECT format('chunks_%%s_%%s', id, segment) FROM penstock.queues WHERE name = %s", [queue]
        ).fetchall()

        def looks() -> int:
            ((count,),) = watcher.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s",
                [f"%k.body FROM penstock.{table} k%"],
            ).fetchall()
            return int(count)

        holder.execute(f"LOCK TABLE penstock.{table} IN ACCESS EXCLUSIVE MODE".encode())
        with ThreadPoolExecutor(12) as callers:
            asked = [callers.submit(look) for _ in range(12)]
            soon(lambda: looks() == 2)
            # Of eight connections two are for looking.
            plane.push(f"{queue}-other", [1])
            assert looks() <= 2
        soon(lambda: looks() == 0)
        assert all(each.done() for each in asked)
    assert plane.http.get(path.format(queue=queue)).status_code == 200
