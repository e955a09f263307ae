"""Live streams of materialized views."""

from __future__ import annotations

import httpx
import pytest

from penstock.log.log import Log
from tests.console.scripted_view import ScriptedView
from tests.server.live.sse_client import SseMessage, open_stream

pytestmark = pytest.mark.slow

STATEMENTS = (
    "CREATE QUEUE view_orders (customer string, amount decimal(18, 6), at timestamp);"
    "CREATE MATERIALIZED VIEW live_customers AS SELECT customer, count(*) AS orders, sum(amount) AS total, "
    "max(at) AS last_order FROM view_orders GROUP BY customer"
)


def totals(message: SseMessage) -> dict[str, int]:
    return {row["customer"]: row["orders"] for row in message.data["rows"]}


async def test_rows_of_a_view_and_the_keys_that_change(http: httpx.AsyncClient, log: Log) -> None:
    await log.configure("view_orders")
    view = await ScriptedView.start(log, STATEMENTS, "live_customers")
    await view.cycle(log, {"ada": (1, "5.5"), "bob": (2, "7")})
    async with open_stream(http, "/v1/queries/live_customers/live") as reader:
        first = await reader.next()
        assert (first.event, totals(first)) == ("snapshot", {"ada": 1, "bob": 2})
        assert first.data["rows"][0]["total"] == 5.5
        await view.cycle(log, {"ada": (3, "6")}, deleted=["bob"])
        second = await reader.next()
        assert (second.event, totals(second)) == ("changes", {"ada": 3})
        assert sorted(second.data["keys"]) == ["ada", "bob"]
    async with open_stream(http, "/v1/queries/live_customers/live", keys="ada,eve") as reader:
        assert totals(await reader.next()) == {"ada": 3}
