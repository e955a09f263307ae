"""A body of lines that is too large to be pushed at once: staged as it arrives, made visible at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from penstock.core.errors import InvalidEvent
from penstock.log.write.batch import MOST_REJECTED, too_many
from penstock.log.write.result import PushResult, Rejected
from penstock.log.write.upload import UploadLost
from penstock.server.http.endpoint import Call
from penstock.server.http.errors import Problem, retry_after
from penstock.server.ingest.parse import lines_batch

if TYPE_CHECKING:
    from penstock.log.log import Batch
    from penstock.log.queue import Queue
    from penstock.log.write.encode import Piece
    from penstock.log.write.upload import Upload, Uploaded


async def upload(call: Call, queue: Queue, slices: AsyncIterator[bytes], idempotency_key: str | None) -> PushResult:
    """Store the lines, all or none (of the good ones, if it is a partial request)."""
    log = call.services.log
    staged = await log.upload(queue.name)
    digest = blake2b(repr(call.query).encode(), digest_size=16)
    rejected: list[Rejected] = []
    published = False
    lines = 0
    try:
        async for text in slices:
            digest.update(text)
            batch = lines_batch(queue.name, text, call.query, call.request.headers)
            pieces, bad = await _prepared(call, batch, lines)
            lines += sum([piece.columns.count for piece in pieces]) + len(bad)
            rejected += bad
            if len(rejected) > MOST_REJECTED:
                last = rejected[-1]
                raise too_many(InvalidEvent(last.reason, index=last.index, field=last.field))
            await staged.add(pieces)
        is_shed = not await log.admit(queue, staged.events, idempotency_key)
        done = await _publish(staged, idempotency_key, digest.digest(), rejected, is_shed=is_shed)
        published = True
    finally:
        if not published:
            await staged.abandon()
    result = PushResult([], replayed=done.replayed, shed=done.shed, rejected=rejected)
    result.accepted = done.accepted
    return result


async def _prepared(call: Call, batch: Batch, before: int) -> tuple[Sequence[Piece], list[Rejected]]:
    """What can be stored of a slice, with places counted from the beginning of the body."""
    try:
        if not call.query.partial:
            return await call.services.log.prepare(batch), []
        pieces, bad = await call.services.log.prepare_partly(batch)
    except InvalidEvent as error:
        raise InvalidEvent(error.reason, index=before + error.index, field=error.field) from None
    return pieces, [replace(each, index=before + each.index) for each in bad]


async def _publish(
    staged: Upload, idempotency_key: str | None, fingerprint: bytes, rejected: Sequence[Rejected], *, is_shed: bool
) -> Uploaded:
    try:
        return await staged.publish(
            idempotency_key=idempotency_key, fingerprint=fingerprint, rejected=rejected, is_shed=is_shed
        )
    except UploadLost as error:
        raise Problem("overloaded", str(error), {"retry_after": 1.0}, retry_after(1)) from None
