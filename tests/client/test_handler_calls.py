from __future__ import annotations

from typing import cast

import pytest

from penstock import Event, Penstock
from penstock.client.handler_calls import BatchDelivery
from penstock.log.read.consume_loop import EventSource
from tests.client.conditions import numbered_events, sequence_numbers


class RecordingSource:
    """Passes the acks of a delivery on to a client, and records the events in each."""

    def __init__(self, client: Penstock) -> None:
        self.acks: list[list[int]] = []
        self._client = client

    async def ack(self, events: list[Event], status: bool = True) -> object:
        self.acks.append(sequence_numbers(events))
        return await self._client.ack(events, status)


@pytest.mark.parametrize(("report_seconds", "acks"), [(0.0, [[0], [1], [2]]), (3600.0, [[2]])])
async def test_completed_events_are_acknowledged_after_the_report_time(
    q: Penstock, report_seconds: float, acks: list[list[int]]
) -> None:
    await q.queue("jobs").create()
    await q.queue("jobs").push(numbered_events(3))
    source = RecordingSource(q)
    delivery = BatchDelivery(
        cast("EventSource", source),
        await q.queue("jobs").batch(3).pop(),
        lease_seconds=30,
        is_stopping=lambda: False,
        report_seconds=report_seconds,
    )

    async def handle(event: object) -> None:
        pass

    await delivery.deliver_one_by_one(handle)

    assert source.acks == acks
    assert delivery.completed == 3
    assert await q.queue("jobs").lag() == 0
