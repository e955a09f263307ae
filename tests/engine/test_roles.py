"""The engine's database role has all privileges that a query needs."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from penstock import SyncPenstock
from tests.database_roles import RoleUrls, create_roles
from tests.engine.pipelines import T0, Bench, counted, stream
from tests.servers import Server


@pytest.fixture
def roles(pg18: Server) -> Iterator[RoleUrls]:
    with create_roles(pg18) as found:
        yield found


def test_the_engine_role_runs_a_query_and_others_see_its_results(roles: RoleUrls, spark: object) -> None:
    with SyncPenstock(roles.server) as producer:
        producer.queue("orders").create("hash", 2)
        producer.queue("totals").create()
        producer.queue("orders").push(
            [{"key": f"k{i % 3}", "data": {"ts": T0 + i, "amount": "x" if i == 7 else 1}} for i in range(30)]
        )
    with SyncPenstock(roles.engine) as engine:
        bench = Bench(roles.engine, engine)
        query = bench.run(counted(stream()).to("totals"))
        assert (query.status.events_in, query.status.dead) == (30, 1)
        for url in (roles.server, roles.reader, roles.engine):
            with psycopg.connect(url) as conn:
                seen = conn.execute("SELECT sum(n) FROM penstock_history.q").fetchone()
                assert seen == (29,), url
        with SyncPenstock(roles.server) as consumer:
            windows = consumer.queue("totals").group("mail").batch(100).partitions(10).pop()
            assert sum(event.data["n"] for event in windows) == 29
            consumer.ack(windows)
        # A reset creates the tables again.
        assert bench.run(counted(stream()).to("totals"), reset=True).status.events_in == 30
