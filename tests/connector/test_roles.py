"""Spark jobs need the server's role, and those that only read need `SELECT`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from pyspark.sql.types import LongType

from penstock import SyncPenstock
from penstock.core.errors import PenstockError
from penstock.engine.query_registry import Registry
from penstock.engine.results.result_tables import ResultTables
from tests.connector.direct_source import DirectSource, arrow, schema_of
from tests.cycle_driver import COLUMNS
from tests.database_roles import RoleUrls, create_roles
from tests.log.logs import opened
from tests.servers import Server

VALUES = schema_of("key", "value")
GRANTS = "GRANT USAGE ON SCHEMA penstock TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA penstock TO {role}"


@pytest.fixture(scope="module")
def database(pg18: Server) -> Iterator[RoleUrls]:
    with create_roles(pg18) as found:
        yield found


@pytest.fixture
def as_role(tmp_path: Path) -> Iterator[Callable[[str], DirectSource]]:
    """The format, connected as some role."""
    with ExitStack() as stack:

        def connected(url: str) -> DirectSource:
            file = tmp_path / f"url-{len(list(tmp_path.iterdir()))}"
            file.write_text(url)
            return stack.enter_context(closing(DirectSource(str(file))))

        yield connected


async def make_result(url: str) -> None:
    async with opened(url) as log:
        query = await Registry(log).register("totals", ["from: jobs"], "abc", sink=None, history_seconds=60)
        await Registry(log).create_tables(ResultTables(query.id, "totals", COLUMNS))


def test_server_role_reads_writes_and_follows(database: RoleUrls, as_role: Callable[[str], DirectSource]) -> None:
    direct = as_role(database.server)
    with SyncPenstock(database.server) as producer:
        producer.queue("jobs").create("hash", 2)
    for _ in range(2):
        writer = direct.writer(VALUES, queue="jobs", txnAppId="nightly", txnVersion="1")
        writer.commit([writer.write(iter([arrow(VALUES, [{"key": "ada", "value": "1"}])]))])
    writer = direct.writer(VALUES, queue="jobs")
    writer.abort([writer.write(iter([arrow(VALUES, [{"key": "bob", "value": "2"}])]))])
    assert [row["key"] for row in direct.rows(queue="jobs")] == ["ada"]

    stream = direct.stream(queue="jobs", group="spark", startingOffsets="earliest")
    end, rows = direct.next(stream, stream.initialOffset())
    stream.commit(end)
    assert [row["value"] for row in rows] == ["1"]
    with SyncPenstock(database.server) as producer:
        assert producer.queue("jobs").group("spark").lag() == 0

    asyncio.run(make_result(database.engine))
    reader = direct.format(query="totals").reader(schema_of(count=LongType()))
    assert list(reader.read(None)) == []  # type: ignore[arg-type]  # the whole result is one task


def test_read_only_role_reads_and_follows_without_a_group(
    database: RoleUrls, as_role: Callable[[str], DirectSource], pg18: Server
) -> None:
    with SyncPenstock(database.server) as producer:
        producer.queue("looked-at").create("hash", 1)
        producer.queue("looked-at").push([{"data": 1, "key": "ada"}])
    role = f"analyst_{database.roles.server}"
    with pg18.superuser() as superuser, psycopg.connect(database.superuser, autocommit=True) as conn:
        superuser.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        conn.execute(sql.SQL(GRANTS).format(role=sql.Identifier(role)))
        direct = as_role(pg18.url(conn.info.dbname, role))
        assert [row["key"] for row in direct.rows(queue="looked-at")] == ["ada"]
        stream = direct.stream(queue="looked-at", startingOffsets="earliest")
        assert [row["key"] for row in direct.next(stream, stream.initialOffset())[1]] == ["ada"]
        published = direct.stream(queue="looked-at", group="analyst")
        with pytest.raises((PenstockError, psycopg.errors.InsufficientPrivilege), match="permission denied"):
            direct.next(published, published.initialOffset())
        writer = direct.writer(VALUES, queue="looked-at")
        with pytest.raises((PenstockError, psycopg.errors.InsufficientPrivilege), match="permission denied"):
            writer.write(iter([arrow(VALUES, [{"key": "bob", "value": "2"}])]))
        direct.close()
        conn.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
        superuser.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
