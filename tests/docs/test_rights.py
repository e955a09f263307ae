"""The rights that the documentation tells people to grant are enough."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from penstock import Penstock
from tests.docs.pages import ROOT, blocks_of
from tests.servers import Server

_PAGE = ROOT / "docs/how-to/own-postgresql.md"
_APP, _DASHBOARDS = "orders_app", "dashboards"


@pytest.fixture
def database(pg18: Server) -> Iterator[str]:
    """An empty database in which the page's SQL was run, by its name."""
    with pg18.fresh_database("template0") as url:
        name = str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])
        grant_app, grant_dashboards = blocks_of(_PAGE, "sql")
        with pg18.superuser(name) as connection:
            connection.execute(f"REVOKE CREATE, TEMPORARY ON DATABASE {name} FROM PUBLIC".encode())
            connection.execute(grant_app.text.encode())
            connection.execute(grant_dashboards.text.encode())
        yield name
    with pg18.superuser() as connection:
        connection.execute(f"DROP ROLE {_APP}, {_DASHBOARDS}".encode())


async def test_the_role_of_the_application_can_do_everything(database: str, pg18: Server) -> None:
    async with Penstock(pg18.url(database, _APP)) as q:
        orders = q.queue("orders")
        await orders.config(retry_limit=0).create()
        await orders.push([{"data": 1, "id": "a"}, {"data": 2, "id": "b"}])
        events = await orders.batch(10).pop()
        await q.ack(events, "dead_letter", error="on purpose")
        await orders.dlq().redrive(all=True)
        await orders.repartition("hash", 2)
        await q.upkeep()

        assert await orders.lag() == 2
        assert await orders.delete()


async def test_dashboards_can_read_tables_that_are_made_later(database: str, pg18: Server) -> None:
    async with Penstock(pg18.url(database, _APP)) as q:
        await q.queue("orders").create()
        await q.queue("orders").push({"data": 1})

    with psycopg.connect(pg18.url(database, _DASHBOARDS)) as connection:
        (chunks,) = connection.execute("SELECT sum(event_count) FROM penstock.chunks_1_1").fetchall()

        assert chunks == (1,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DELETE FROM penstock.queues")
