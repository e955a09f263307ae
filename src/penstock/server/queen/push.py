"""Pushing: messages for any number of queues and partitions, stored together or not at all."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from penstock.core import json
from penstock.core.errors import InvalidEvent, QueueFull
from penstock.log.log import Batch, Log
from penstock.log.queue import DEFAULT_KEY
from penstock.log.write.result import Pushed, PushResult
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.http.errors import Problem, problem_of
from penstock.server.ingest.accounting import producer_of
from penstock.server.ingest.headers import full_headers
from penstock.server.queen.identifiers import Kind, message_id, pack
from penstock.server.queen.queues import TAG, ensure

#: The headers in which an event keeps what only the plane knows.
TRACE_HEADER = "traceId"
PRODUCER_HEADER = "producerSub"

_SLOWER = {"code": "rate_limited"}
_SHED = "dropped and counted: the queue is full, and was told to shed what comes then"


class PushItem(msgspec.Struct, rename="camel"):
    """A message to push."""

    queue: str
    payload: Raw = field(default_factory=lambda: Raw(b"null"))
    partition: str | None = None
    transaction_id: str | None = None
    trace_id: str | None = None


class Push(msgspec.Struct):
    """Messages to push."""

    items: list[PushItem]


class ItemPushed(msgspec.Struct):
    """What became of a message."""

    index: int
    transaction_id: str
    status: str
    message_id: str | None
    partition_id: str | None
    queueName: str
    trace_id: str | UnsetType | None = UNSET
    error: str | UnsetType = UNSET


class Items:
    """Messages of a request, as batches for the log and back in order."""

    def __init__(self, items: Sequence[PushItem], producer: str = "") -> None:
        self._items = items
        self.ids = [item.transaction_id or str(uuid.uuid4()) for item in items]
        self._places: dict[str, list[int]] = {}
        for index, item in enumerate(items):
            self._places.setdefault(item.queue, []).append(index)
        self._producer = producer

    @property
    def queues(self) -> list[str]:
        """The queues that they are for."""
        return list(self._places)

    async def batches(self, log: Log) -> list[Batch]:
        """What the log is to store; queues that do not exist are made."""
        for queue in self._places:
            await ensure(log, queue)
        return [Batch(queue, [self._event(i) for i in places]) for queue, places in self._places.items()]

    def _event(self, index: int) -> dict[str, Any]:
        item = self._items[index]
        try:
            event: dict[str, Any] = {"data": json.decode(bytes(item.payload)), "id": self.ids[index]}
        except json.JSONProblem as problem:
            raise InvalidEvent(str(problem), index=index, field="payload") from None
        if item.partition and item.partition != DEFAULT_KEY:
            event["key"] = item.partition
        headers = {TRACE_HEADER: item.trace_id, PRODUCER_HEADER: self._producer}
        told = {name: value for name, value in headers.items() if value}
        if told:
            event["headers"] = told
        return event

    def results(self, stored: Sequence[PushResult]) -> list[ItemPushed]:
        """What became of each, in the order of the request."""
        found: list[ItemPushed | None] = [None] * len(self._items)
        for (queue, places), result in zip(self._places.items(), stored, strict=True):
            if len(result) < len(places):
                for index in places:
                    found[index] = ItemPushed(index, self.ids[index], "failed", None, None, queue, error=_SHED)
                continue
            for index, pushed in zip(places, result, strict=True):
                found[index] = self._result(index, pushed)
        return [each for each in found if each is not None]

    def _result(self, index: int, pushed: Pushed) -> ItemPushed:
        return ItemPushed(
            index,
            self.ids[index],
            pushed.status,
            message_id(pushed.partition_id, pushed.offset),
            pack(Kind.PARTITION, pushed.partition_id),
            pushed.queue,
            UNSET if pushed.duplicate else self._items[index].trace_id,
        )


async def push(call: Call) -> list[ItemPushed]:
    """Store messages."""
    body: Push = call.body
    items = Items(body.items, call.caller)
    call.permit(items.queues)
    if not body.items:
        return []
    log = call.services.log
    check_rate(call)
    try:
        pushed = items.results(await log.push(await items.batches(log)))
    except QueueFull as error:
        raise too_fast(error) from None
    count(call, pushed)
    return pushed


def check_rate(call: Call) -> None:
    """Refuse a producer that is too fast, with the code by which the clients know that."""
    try:
        call.services.producers.check(producer_of(call))
    except Problem as problem:
        raise Problem(problem.kind, problem.detail, {**problem.facts, **_SLOWER}, problem.headers) from None


def count(call: Call, pushed: Sequence[ItemPushed]) -> None:
    """Add a push to the metrics, by queue, and to what its producer has pushed."""
    call.services.producers.take(producer_of(call), len(pushed))
    by_queue = Counter((each.queueName, each.status) for each in pushed)
    for queue in dict.fromkeys(each.queueName for each in pushed):
        call.services.metrics.pushed(
            queue,
            accepted=by_queue[queue, "queued"],
            duplicates=by_queue[queue, "duplicate"],
            dropped=by_queue[queue, "failed"],
        )


def too_fast(error: QueueFull) -> Problem:
    """A full queue, with the code by which the clients know that they are to slow down."""
    problem = problem_of(error)
    return Problem(problem.kind, problem.detail, {**problem.facts, **_SLOWER}, full_headers(error))


ENDPOINTS = (
    Endpoint(
        "POST",
        "/api/v1/push",
        push,
        "Push messages",
        TAG,
        roles=frozenset({Role.PRODUCE}),
        asks=True,
        body=Push,
        answer=list[ItemPushed],
        status=201,
        plane=True,
        problems=("invalid-event", "invalid-name", "queue-full", "rate-limited"),
    ),
)
