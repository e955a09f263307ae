"""The endpoint that pushes messages to any number of queues and partitions, all or none of them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from penstock.core import json
from penstock.core.backoff import Backoff, RetryTimer
from penstock.core.errors import InvalidEvent, QueueFull
from penstock.log.log import Log
from penstock.log.queue import DEFAULT_KEY
from penstock.log.write.encode.batch import Batch
from penstock.log.write.push_result import Pushed, PushResult
from penstock.server.auth.identity import Role
from penstock.server.ingest.push_counters import count_push, producer_id
from penstock.server.queen.endpoint import ListBody, NullableList, queen_routes
from penstock.server.queen.identifiers import (
    PRODUCER_HEADER,
    TRACE_HEADER,
    IdKind,
    encode_id,
    encode_message_id,
    producer_subject,
)
from penstock.server.queen.queues import get_or_create_queue
from penstock.server.routing.call import ApiCall

routes = queen_routes("invalid-event", "invalid-name", "queue-full", "rate-limited")

#: The pauses between two looks at a full queue. Its depth is measured four times a second.
_WAIT_FOR_ROOM = Backoff(0.25, 1.0)
_SHED = "the queue is full and its overflow policy is shed: the message was dropped and counted"


class PushItem(msgspec.Struct, rename="camel"):
    queue: str
    payload: Raw = field(default_factory=lambda: Raw(b"null"))
    partition: str | None = None
    transaction_id: str | None = None
    trace_id: str | None = None


class PushItems(ListBody):
    items: NullableList[PushItem]


class PushItemResult(msgspec.Struct):
    """The result of one message: ``status`` is queued, duplicate or failed."""

    index: int
    transaction_id: str
    status: str
    message_id: str | None
    partition_id: str | None
    queueName: str
    trace_id: str | UnsetType | None = UNSET
    error: str | UnsetType = UNSET


class MessagesByQueue:
    """The messages of a request grouped by queue, and their results in the order of the request."""

    def __init__(self, items: Sequence[PushItem], caller: str) -> None:
        self._items = items
        self._ids = [item.transaction_id or str(uuid.uuid4()) for item in items]
        self._indices: dict[str, list[int]] = {}
        for index, item in enumerate(items):
            self._indices.setdefault(item.queue, []).append(index)
        self._producer = producer_subject(caller)

    @property
    def queues(self) -> list[str]:
        return list(self._indices)

    async def batches(self, log: Log) -> list[Batch]:
        """Build one batch for each queue; create the queues that do not exist."""
        for queue in self._indices:
            await get_or_create_queue(log, queue)
        return [Batch(queue, [self._event(i) for i in indices]) for queue, indices in self._indices.items()]

    def _event(self, index: int) -> dict[str, Any]:
        item = self._items[index]
        try:
            event: dict[str, Any] = {"data": json.decode(bytes(item.payload)), "id": self._ids[index]}
        except json.JSONProblem as problem:
            raise InvalidEvent(str(problem), index=index, field="payload") from None
        if item.partition and item.partition != DEFAULT_KEY:
            event["key"] = item.partition
        headers = {TRACE_HEADER: item.trace_id, PRODUCER_HEADER: self._producer}
        present = {name: value for name, value in headers.items() if value}
        if present:
            event["headers"] = present
        return event

    def results(self, pushes: Sequence[PushResult]) -> list[PushItemResult]:
        """Return the result of each message, given that of each batch."""
        results: dict[int, PushItemResult] = {}
        for (queue, indices), pushed in zip(self._indices.items(), pushes, strict=True):
            if len(pushed) < len(indices):
                for index in indices:
                    results[index] = PushItemResult(index, self._ids[index], "failed", None, None, queue, error=_SHED)
                continue
            for index, event in zip(indices, pushed, strict=True):
                results[index] = self._result(index, event)
        return [results[index] for index in range(len(self._items))]

    def count(self, call: ApiCall, pushes: Sequence[PushResult]) -> None:
        """Count the messages in the metrics of their queues and towards the rate limit of the producer."""
        for queue, pushed in zip(self._indices, pushes, strict=True):
            count_push(call, queue, pushed)

    def _result(self, index: int, event: Pushed) -> PushItemResult:
        return PushItemResult(
            index,
            self._ids[index],
            event.status,
            encode_message_id(event.partition_id, event.offset),
            encode_id(IdKind.PARTITION, event.partition_id),
            event.queue,
            UNSET if event.duplicate else self._items[index].trace_id,
        )


@routes.post("/api/v1/push", "Push messages", Role.PRODUCE, checks_queues=True, status=201)
async def push_messages(call: ApiCall, body: PushItems) -> list[PushItemResult]:
    messages = MessagesByQueue(body.items, call.caller)
    call.require_access(messages.queues)
    if not body.items:
        return []
    call.services.producer_rates.check(producer_id(call))
    batches = await messages.batches(call.log)
    # Most of these clients do not retry a push that was refused.
    retries = RetryTimer(_WAIT_FOR_ROOM, call.services.settings.queen_push_wait_seconds)
    while True:
        try:
            pushes = await call.log.push(batches)
            break
        except QueueFull:
            pause = retries.next_pause()
            if pause is None:
                raise
            await asyncio.sleep(pause)
    messages.count(call, pushes)
    return messages.results(pushes)
