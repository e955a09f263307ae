"""Pushing: checked and encoded, let in if there is room, then stored together with what others push."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from penstock.core.errors import QueueFull
from penstock.core.names import check_name
from penstock.log.write.batch import Batch, prepare_batch, prepare_partly
from penstock.log.write.encode import Piece, Placer
from penstock.log.write.flush import Request
from penstock.log.write.group_commit import Coalescer
from penstock.log.write.result import PushResult, Rejected
from penstock.log.write.trace_headers import stamped

if TYPE_CHECKING:
    from penstock.log.catalog import Catalog
    from penstock.log.queue import Queue
    from penstock.log.read.ack import LaneAck
    from penstock.log.storage.depth import Depths
    from penstock.log.write.append import Appender

#: A flush takes this many events at the most.
_FLUSH_WEIGHT = 16_000
#: From this many waiting events on, a second flush runs beside the first.
_LARGE_FLUSH = 1_000


class Pusher:
    """Takes pushes.

    Args:
        max_event_bytes: How large an event may be where its queue does not say.
        committed: Told of each push how many seconds its commit took.
        stamp: Asked for each push what its events are to carry beside their own headers.
    """

    def __init__(
        self,
        catalog: Catalog,
        appender: Appender,
        depths: Depths,
        *,
        max_event_bytes: int,
        committed: Callable[[float], None] | None = None,
        stamp: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self._catalog = catalog
        self._appender = appender
        self._depths = depths
        self._max_event_bytes = max_event_bytes
        self._committed = committed
        self._stamp = stamp
        self._pushes: Coalescer[Request] = Coalescer(
            appender.append, weigh=attrgetter("weight"), most=_FLUSH_WEIGHT, large=_LARGE_FLUSH
        )
        self._sheds: Coalescer[Sequence[tuple[int, int]]] = Coalescer(self._write_shed)

    async def drain(self) -> None:
        """Wait until no push is under way."""
        await self._pushes.drain()

    async def push(self, batches: Sequence[Batch]) -> list[PushResult]:
        """Store all batches or none: the common case, which most pushes are."""
        if self._stamp is not None:
            return await self.push_with(batches)
        parts = [prepare_batch(*(self._at_hand(batch) or await self._place_for(batch)), batch) for batch in batches]
        for part in parts:
            if not part or part[0].queue.max_depth_events is not None:
                return await self._store(Request.less(parts, await self.admit_parts(parts)))
        return await self._store(Request(parts))

    async def push_with(
        self,
        batches: Sequence[Batch],
        *,
        idempotency_key: str | None = None,
        partial: bool = False,
        rejected: Sequence[Rejected] = (),
    ) -> list[PushResult]:
        """The same with all that a push may bring.

        With ``partial``, what cannot be an event becomes a dead letter in the same transaction, and the others are
        stored; ``rejected`` are some of the first batch that were found to be such before.
        """
        parts: list[list[Piece]] = []
        bad: list[list[Rejected]] = []
        for batch in batches:
            pieces, refused = await self.prepare_partly(batch) if partial else (await self.prepare(batch), [])
            parts.append(pieces)
            bad.append(refused)
        if rejected:
            bad[0] = sorted([*rejected, *bad[0]], key=attrgetter("index"))
        ids = [
            (await self._catalog.get(batch.queue)).id if some else 0 for batch, some in zip(batches, bad, strict=True)
        ]
        letters = [(queue_id, each) for queue_id, some in zip(ids, bad, strict=True) for each in some]
        said = b""
        if idempotency_key is not None:
            check_name(idempotency_key, "request")
            said = fingerprint(parts, letters)
        if self._stamp is not None and (stamp := self._stamp()):
            parts = stamped(parts, stamp)
        request = Request.less(parts, await self.admit_parts(parts, key=idempotency_key))
        request.rejected = letters
        request.idempotency_key, request.fingerprint = idempotency_key, said
        return await self._store(request, bad)

    async def _store(self, request: Request, bad: Sequence[Sequence[Rejected]] = ()) -> list[PushResult]:
        """Store a request, and answer for all its parts, those too that were shed or rejected."""
        if request.weight or request.rejected or request.idempotency_key is not None:
            begun = time.perf_counter()
            await self._pushes.submit(request)
            if self._committed is not None:
                self._committed(time.perf_counter() - begun)
        else:
            request.results = [PushResult([]) for _ in request.parts]
            request.tell_shed()
        if request.rejected:
            for result, refused in zip(request.results, bad, strict=True):
                result.rejected = refused
        return request.results

    async def admit_parts(
        self, parts: Sequence[Sequence[Piece]], acked: Mapping[str, int] | None = None, key: str | None = None
    ) -> dict[int, int]:
        """Let a push through, or raise QueueFull; what a transaction takes out of a queue it may put into it.

        What was answered before under its idempotency key is let through: it is answered again, and not stored. So is
        what was shed then, whether there is room for it by now or not.
        Answers which parts are dropped, because their queue is full and sheds, and how many events each of them is.
        """
        try:
            shed = await self._over(parts, acked or {})
        except QueueFull:
            if not await self._is_answered(key):
                raise
            return {}
        if not shed or await self._is_answered(key):
            return {}
        await self._sheds.submit([(parts[i][0].queue.id, events) for i, events in shed.items()])
        return shed

    async def _over(self, parts: Sequence[Sequence[Piece]], acked: Mapping[str, int]) -> dict[int, int]:
        """The parts whose queue is full and sheds, and how many events each of them is."""
        shed: dict[int, int] = {}
        for i, part in enumerate(parts):
            if part and part[0].queue.max_depth_events is not None:
                queue = part[0].queue
                more = sum([piece.columns.count for piece in part])
                less = acked.get(queue.name, 0)
                if more > less and not await self._depths.admit(queue, more - less):
                    shed[i] = more
        return shed

    async def admit(self, queue: Queue, events: int, key: str | None = None) -> bool:
        """Whether so many more events are let in, and if so counted as there; QueueFull if not, False if shed.

        What was answered before under its idempotency key is let through, as it is with a push.
        """
        try:
            if await self._depths.admit(queue, events):
                return True
        except QueueFull:
            if not await self._is_answered(key):
                raise
            return True
        if await self._is_answered(key):
            return True
        await self._sheds.submit([(queue.id, events)])
        return False

    async def check_room(self, queue: Queue, key: str | None = None) -> None:
        """Raise QueueFull if the queue takes nothing for now, unless there is an answer under the key already."""
        try:
            await self._depths.check(queue)
        except QueueFull:
            if not await self._is_answered(key):
                raise

    async def _is_answered(self, key: str | None) -> bool:
        """Whether something was answered under an idempotency key."""
        return key is not None and await self._appender.knows(key)

    async def _write_shed(self, asked: Sequence[Sequence[tuple[int, int]]]) -> None:
        """Count what several pushes lost in one statement."""
        counts: Counter[int] = Counter()
        for some in asked:
            for queue_id, events in some:
                counts[queue_id] += events
        await self._depths.shed(counts)

    async def prepare(self, batch: Batch) -> list[Piece]:
        """Check and encode a batch."""
        return prepare_batch(*await self._place_for(batch), batch)

    async def prepare_partly(self, batch: Batch) -> tuple[list[Piece], list[Rejected]]:
        """Check and encode what is good of a batch, and say what is wrong with the rest."""
        return prepare_partly(*await self._place_for(batch), batch)

    def _at_hand(self, batch: Batch) -> tuple[Placer, int] | None:
        """What places the events of a batch, and how large one may be; None if that has to be asked for."""
        queue = self._catalog.at_hand(batch.queue) if type(batch.queue) is str else None
        if queue is None:
            return None
        return self._catalog.placer(queue), queue.max_event_bytes or self._max_event_bytes

    async def _place_for(self, batch: Batch) -> tuple[Placer, int]:
        check_name(batch.queue, "queue")
        queue = await self._catalog.get(batch.queue)
        return self._catalog.placer(queue), queue.max_event_bytes or self._max_event_bytes


def fingerprint(
    parts: Sequence[Sequence[Piece]], rejected: Sequence[tuple[int, Rejected]] = (), acks: Sequence[LaneAck] = ()
) -> bytes:
    """What a request says, wherever its events land."""
    digest = blake2b(digest_size=16)
    if acks:
        digest.update(repr(acks).encode())
    for _, each in rejected:
        digest.update(b"%d %d " % (each.index, len(each.raw)) + each.raw)
    for part in parts:
        said = sorted((event for piece in part for event in piece.events()), key=itemgetter(0))
        digest.update(repr([(piece.queue.name) for piece in part[:1]] + said).encode())
    return digest.digest()
