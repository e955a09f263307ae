"""Pushes events: validates and encodes them, applies backpressure, and stores concurrent pushes together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from penstock.core.encryption import check_key
from penstock.core.errors import QueueFull
from penstock.core.names import check_name
from penstock.log.catalog import Catalog
from penstock.log.group_commit import GroupCommit
from penstock.log.partitioner import Partitioner
from penstock.log.queue import Queue
from penstock.log.write.append import Appender
from penstock.log.write.backpressure import Backpressure
from penstock.log.write.encode.batch import Batch, encode_batch, encode_valid_events
from penstock.log.write.encode.piece import Piece
from penstock.log.write.flush import AppendRequest
from penstock.log.write.idempotency import IdempotencyKeys, fingerprint
from penstock.log.write.push_result import PushResult, RejectedInput

#: The most events in a flush.
_FLUSH_WEIGHT = 16_000
#: With this many waiting events, a second flush runs beside the first.
_PARALLEL_WEIGHT = 1_000


@dataclass(slots=True, eq=False)
class Pusher:
    catalog: Catalog
    appender: Appender
    backpressure: Backpressure
    idempotency_keys: IdempotencyKeys
    #: The size limit of an event, for queues without a limit of their own.
    max_event_bytes: int
    #: Called after each push with the seconds that its commit took.
    committed: Callable[[float], None] | None = None
    #: Called for each push. It returns headers to add to the events.
    stamp: Callable[[], Mapping[str, str]] | None = None
    _appends: GroupCommit[AppendRequest] = field(init=False)
    _shed_counts: GroupCommit[Counter[int]] = field(init=False)

    def __post_init__(self) -> None:
        self._appends = GroupCommit(
            self.appender.append, weigh=attrgetter("weight"), max_weight=_FLUSH_WEIGHT, parallel_weight=_PARALLEL_WEIGHT
        )
        self._shed_counts = GroupCommit(self._record_shed)

    async def drain(self) -> None:
        await self._appends.drain()

    async def push(self, batches: Sequence[Batch]) -> list[PushResult]:
        """Store all batches in one transaction: the common case, without idempotency key and rejected input."""
        if self.stamp is not None:
            return await self.push_with(batches)
        parts = [encode_batch(*(self._cached_encoder(batch) or await self._encoder(batch)), batch) for batch in batches]
        for part in parts:
            if not part or part[0].queue.is_limited:
                return await self._store(AppendRequest.without_shed(parts, await self.admit_parts(parts)))
        return await self._store(AppendRequest(parts))

    async def push_with(
        self,
        batches: Sequence[Batch],
        *,
        idempotency_key: str | None = None,
        partial: bool = False,
        rejected: Sequence[RejectedInput] = (),
    ) -> list[PushResult]:
        """Store all batches in one transaction, with all options of a push.

        With ``partial``, invalid events become dead letters in the same transaction and the others are stored.
        ``rejected`` is input of the first batch that was rejected before.
        """
        parts: list[list[Piece]] = []
        rejected_by_batch: list[list[RejectedInput]] = []
        for batch in batches:
            pieces, invalid = await self.encode_valid(batch) if partial else (await self.encode(batch), [])
            parts.append(pieces)
            rejected_by_batch.append(invalid)
        if rejected:
            rejected_by_batch[0] = sorted([*rejected, *rejected_by_batch[0]], key=attrgetter("index"))
        rejected_with_queue: list[tuple[Queue, RejectedInput]] = []
        for batch, batch_rejected in zip(batches, rejected_by_batch, strict=True):
            if batch_rejected:
                queue = await self.catalog.get(batch.queue)
                rejected_with_queue += [(queue, invalid) for invalid in batch_rejected]
        request_fingerprint = b""
        if idempotency_key is not None:
            check_name(idempotency_key, "request")
            request_fingerprint = fingerprint(parts, [(queue.id, invalid) for queue, invalid in rejected_with_queue])
        if self.stamp is not None and (headers := self.stamp()):
            parts = [[piece.with_headers(headers) for piece in part] for part in parts]
        request = AppendRequest.without_shed(parts, await self.admit_parts(parts, key=idempotency_key))
        request.rejected = rejected_with_queue
        request.idempotency_key, request.fingerprint = idempotency_key, request_fingerprint
        return await self._store(request, rejected_by_batch)

    async def _store(
        self, request: AppendRequest, rejected_by_batch: Sequence[Sequence[RejectedInput]] = ()
    ) -> list[PushResult]:
        """Store a request and return the results of all its parts, including those that were shed or rejected."""
        if request.weight or request.rejected or request.idempotency_key is not None:
            started = time.perf_counter()
            await self._appends.submit(request)
            if self.committed is not None:
                self.committed(time.perf_counter() - started)
        else:
            request.results = [PushResult([]) for _ in request.parts]
            request.report_shed()
        if request.rejected:
            for result, rejected in zip(request.results, rejected_by_batch, strict=True):
                result.rejected = rejected
        return request.results

    async def admit_parts(
        self, parts: Sequence[Sequence[Piece]], acked: Mapping[str, int] | None = None, key: str | None = None
    ) -> dict[int, int]:
        """Return the parts that are shed with their number of events, by index. Raise QueueFull if one is refused.

        A repetition of a request, by its idempotency key, is always admitted, because it is not stored again.

        Args:
            parts: The pieces of each batch.
            acked: The number of events of each queue that the same transaction acks. They make room for new ones.
            key: The idempotency key of the request.
        """
        try:
            shed = await self._find_shed_parts(parts, acked or {})
        except QueueFull:
            if not await self._is_repetition(key):
                raise
            return {}
        if not shed or await self._is_repetition(key):
            return {}
        counts: Counter[int] = Counter()
        for index, events in shed.items():
            counts[parts[index][0].queue.id] += events
        await self._shed_counts.submit(counts)
        return shed

    async def _find_shed_parts(self, parts: Sequence[Sequence[Piece]], acked: Mapping[str, int]) -> dict[int, int]:
        shed: dict[int, int] = {}
        for i, part in enumerate(parts):
            if part and part[0].queue.is_limited:
                queue = part[0].queue
                events = sum([piece.columns.count for piece in part])
                added = events - acked.get(queue.name, 0)
                if added > 0 and not await self.backpressure.admit(queue, added):
                    shed[i] = events
        return shed

    async def admit(self, queue: Queue, events: int, key: str | None = None) -> bool:
        """Return True if so many events are admitted, or False if they are shed. Raise QueueFull if they are refused.

        A repetition of a request, by its idempotency key, is always admitted.
        """
        try:
            if await self.backpressure.admit(queue, events):
                return True
        except QueueFull:
            if not await self._is_repetition(key):
                raise
            return True
        if await self._is_repetition(key):
            return True
        await self._shed_counts.submit(Counter({queue.id: events}))
        return False

    async def check_capacity(self, queue: Queue, key: str | None = None) -> None:
        try:
            await self.backpressure.check(queue)
        except QueueFull:
            if not await self._is_repetition(key):
                raise

    async def _is_repetition(self, key: str | None) -> bool:
        return key is not None and await self.idempotency_keys.is_used(key)

    async def _record_shed(self, counts: Sequence[Counter[int]]) -> None:
        total: Counter[int] = Counter()
        for shed in counts:
            total += shed
        await self.backpressure.record_shed(total)

    async def encode(self, batch: Batch) -> list[Piece]:
        return encode_batch(*await self._encoder(batch), batch)

    async def encode_valid(self, batch: Batch) -> tuple[list[Piece], list[RejectedInput]]:
        return encode_valid_events(*await self._encoder(batch), batch)

    def _cached_encoder(self, batch: Batch) -> tuple[Partitioner, int] | None:
        """Return the partitioner and the size limit of events, or None if the queue is not in the cache."""
        queue = self.catalog.cached(batch.queue) if type(batch.queue) is str else None
        return None if queue is None else self._encoder_of(queue)

    async def _encoder(self, batch: Batch) -> tuple[Partitioner, int]:
        check_name(batch.queue, "queue")
        return self._encoder_of(await self.catalog.get(batch.queue))

    def _encoder_of(self, queue: Queue) -> tuple[Partitioner, int]:
        if queue.encrypted:
            # Before the push is stored together with others, which would fail with it.
            check_key()
        return self.catalog.partitioner(queue), queue.max_event_bytes or self.max_event_bytes
