"""Uploads: NDJSON bodies too large to push at once are staged as they arrive, and published at their end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from hashlib import blake2b

from penstock.core.errors import InvalidEvent
from penstock.log.queue import Queue
from penstock.log.write.encode.batch import MAX_REJECTED, Batch, too_many_rejected
from penstock.log.write.encode.piece import Piece
from penstock.log.write.push_result import PushResult, RejectedInput
from penstock.log.write.upload import Upload, UploadLost, UploadResult
from penstock.server.http.errors import Problem, retry_after
from penstock.server.ingest.formats import PushQuery, ndjson_batch
from penstock.server.routing.call import ApiCall


async def upload_lines(
    call: ApiCall,
    query: PushQuery,
    queue: Queue,
    line_batches: AsyncIterator[bytes],
    idempotency_key: str | None,
    *,
    needs_valid: bool,
) -> PushResult:
    """Store all lines or none; for a partial push, all valid lines or none.

    With ``needs_valid``, a push without a valid line is refused.
    """
    upload = await call.log.upload(queue.name)
    digest = blake2b(repr(query).encode(), digest_size=16)
    rejected: list[RejectedInput] = []
    is_published = False
    events = lines = 0
    try:
        async for text in line_batches:
            digest.update(text)
            batch = ndjson_batch(queue.name, text, query, call.request.headers)
            pieces, batch_rejected = await _prepare(call, query, batch, events, lines)
            events += sum([piece.columns.count for piece in pieces]) + len(batch_rejected)
            lines += text.count(b"\n")
            rejected += batch_rejected
            if len(rejected) > MAX_REJECTED:
                last = rejected[-1]
                raise too_many_rejected(InvalidEvent(last.reason, index=last.index, field=last.field))
            await upload.add(pieces)
        if needs_valid and rejected and len(rejected) == events:
            first = rejected[0]
            raise InvalidEvent(first.reason, index=first.index, field=first.field)
        is_shed = not await call.log.admit(queue, upload.events, idempotency_key)
        published = await _publish(upload, idempotency_key, digest.digest(), rejected, is_shed=is_shed)
        is_published = True
    finally:
        if not is_published:
            await upload.abandon()
    result = PushResult([], replayed=published.replayed, shed=published.shed, rejected=rejected)
    result.accepted = published.accepted
    return result


async def _prepare(
    call: ApiCall, query: PushQuery, batch: Batch, first_index: int, lines_before: int
) -> tuple[Sequence[Piece], list[RejectedInput]]:
    """Validate and encode a batch. Indices and lines count from the start of the body."""
    try:
        if not query.partial:
            return await call.log.encode(batch), []
        pieces, rejected = await call.log.encode_valid(batch)
    except InvalidEvent as error:
        raise InvalidEvent(error.reason, index=first_index + error.index, field=error.field) from None
    return pieces, [
        replace(each, index=first_index + each.index, line=lines_before + (each.line or 0)) for each in rejected
    ]


async def _publish(
    upload: Upload, idempotency_key: str | None, fingerprint: bytes, rejected: Sequence[RejectedInput], *, is_shed: bool
) -> UploadResult:
    try:
        return await upload.publish(
            idempotency_key=idempotency_key, fingerprint=fingerprint, rejected=rejected, is_shed=is_shed
        )
    except UploadLost as error:
        raise Problem("overloaded", str(error), {"retry_after": 1.0}, retry_after(1)) from None
