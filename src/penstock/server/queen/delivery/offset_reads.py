"""The endpoints that read messages by offset and list the partitions that were written since a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from penstock.core.errors import NotFound
from penstock.core.names import check_text
from penstock.log.event import Event
from penstock.log.read.offset_reads import OffsetReader, PartitionRead
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.http.responses import MAX_RESPONSE_BYTES
from penstock.server.queen.endpoint import ListBody, NullableList, queen_routes
from penstock.server.queen.identifiers import IdKind, encode_id, parse_timestamp
from penstock.server.routing.call import ApiCall

routes = queen_routes("invalid-name")

_MAX_ENTRIES = 1024
_MAX_PAGE = 1000
#: The most partitions of all entries of a response. Later entries get a shorter page, or an empty one.
_MAX_CHANGED = 10_000
_UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"
_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"

_Offset = Annotated[int, Meta(ge=0, le=2**62)]
_Bytes = Annotated[int, Meta(ge=1)]


class FetchEntry(msgspec.Struct, rename="camel"):
    queue: str
    partition: str
    offset: _Offset = 0
    max_bytes: _Bytes | None = None


class FetchRequest(ListBody, rename="camel"):
    entries: NullableList[FetchEntry]
    max_bytes: _Bytes | None = None


class FetchedMessage(msgspec.Struct, rename="camel"):
    offset: int
    transaction_id: str
    payload: Raw
    ts: str


class FetchedEntry(msgspec.Struct, rename="camel"):
    """Messages of one partition. It may have fewer than there are, or none, if the response is full."""

    queue: str
    partition: str
    records: list[FetchedMessage]
    high_watermark: int = 0
    log_start_offset: int = 0
    error: str | UnsetType = UNSET


class FetchResponse(msgspec.Struct):
    entries: list[FetchedEntry]


class ChangedEntry(msgspec.Struct):
    queue: str
    since: str | None = None
    after: str | None = None
    limit: int | None = None


class ChangedRequest(ListBody):
    entries: NullableList[ChangedEntry]


class ChangedMessagePartition(msgspec.Struct, rename="camel"):
    name: str
    id: str
    last_offset: int
    log_start: int
    last_write_at: str | None


class ChangedEntryResult(msgspec.Struct):
    """Partitions in the order of their creation. ``next`` is the ``after`` of the next page."""

    queue: str
    partitions: list[ChangedMessagePartition]
    next: str | None = None
    error: str | UnsetType = UNSET


class ChangedResponse(msgspec.Struct, rename="camel"):
    """``safeTime``: every message of an earlier time is counted."""

    safe_time: str
    entries: list[ChangedEntryResult]


@routes.post("/api/v1/fetch", "Read messages by offset", Role.CONSUME, checks_queues=True)
async def fetch_messages(call: ApiCall, body: FetchRequest) -> FetchResponse:
    """Read messages without a lease; the positions of groups stay unchanged."""
    _check_count(len(body.entries))
    call.require_access({entry.queue for entry in body.entries})
    for entry in body.entries:
        check_text(entry.partition, "the partition")
    wanted = min(body.max_bytes or MAX_RESPONSE_BYTES, MAX_RESPONSE_BYTES)
    budget = min(await call.reserve_response(wanted), wanted)
    reader = _reader(call)
    results: dict[int, FetchedEntry] = {}
    pending = list(enumerate(body.entries))
    while pending:
        # The entries of one queue are read together, unless two are for the same partition.
        queue = pending[0][1].queue
        indices: dict[str, int] = {}
        for index, entry in pending:
            if entry.queue == queue:
                indices.setdefault(entry.partition, index)
        offsets = {partition: body.entries[index].offset for partition, index in indices.items()}
        try:
            is_empty = not any(result.records for result in results.values())
            reads = await reader.read(queue, offsets, max(budget, 0), needs_first=is_empty)
        except NotFound:
            reads = {}
        for partition, index in indices.items():
            read = reads.get(partition)
            results[index] = _fetched(body.entries[index], read)
            budget -= sum(len(message.payload) for message in results[index].records)
        pending = [each for each in pending if each[0] not in results]
    return FetchResponse([results[index] for index in range(len(body.entries))])


def _fetched(entry: FetchEntry, read: PartitionRead | None) -> FetchedEntry:
    fetched = FetchedEntry(entry.queue, entry.partition, [])
    if read is None:
        fetched.error = _UNKNOWN
        return fetched
    fetched.high_watermark, fetched.log_start_offset = read.end, read.first
    if not read.first <= entry.offset <= read.end:
        fetched.error = _OUT_OF_RANGE
        return fetched
    size = 0
    for event in read.events:
        size += len(event.raw)
        if fetched.records and entry.max_bytes is not None and size > entry.max_bytes:
            break
        fetched.records.append(_message(event))
    return fetched


def _message(event: Event) -> FetchedMessage:
    return FetchedMessage(event.offset, event.id, Raw(event.raw), _format_time(event.appended_at))


@routes.post("/api/v1/partitions/changed", "List changed partitions", Role.CONSUME, checks_queues=True)
async def list_changed_partitions(call: ApiCall, body: ChangedRequest) -> ChangedResponse:
    _check_count(len(body.entries))
    call.require_access({entry.queue for entry in body.entries})
    reader = _reader(call)
    safe_time: datetime | None = None
    results: list[ChangedEntryResult] = []
    left = _MAX_CHANGED
    for entry in body.entries:
        since = parse_timestamp(entry.since, "since must be an ISO timestamp") if entry.since else None
        after, limit = _parse_after(entry.after), min(max(entry.limit or _MAX_PAGE, 1), _MAX_PAGE, left)
        try:
            before = await reader.safe_time(entry.queue)
            changed = await reader.changed(entry.queue, since, after=after, limit=limit + 1)
        except NotFound:
            results.append(ChangedEntryResult(entry.queue, [], error=_UNKNOWN))
            continue
        safe_time = before if safe_time is None else min(safe_time, before)
        page = [
            ChangedMessagePartition(
                partition.name,
                encode_id(IdKind.PARTITION, partition.id),
                partition.end - 1,
                partition.first,
                None if partition.last_at is None else _format_time(partition.last_at),
            )
            for partition in changed[:limit]
        ]
        left -= len(page)
        last = changed[len(page) - 1].id if page else after
        results.append(ChangedEntryResult(entry.queue, page, str(last) if len(changed) > limit else None))
    return ChangedResponse(_format_time(safe_time or datetime.now(UTC)), results)


def _reader(call: ApiCall) -> OffsetReader:
    return OffsetReader(call.log.database.pool, call.log.catalog, call.log.clock)


def _check_count(count: int) -> None:
    if count > _MAX_ENTRIES:
        raise Problem("invalid-request", f"entries may have up to {_MAX_ENTRIES} elements; this one has {count}")


def _parse_after(after: str | None) -> int:
    if after and not (after.isascii() and after.isdigit() and len(after) <= 18):
        raise Problem("invalid-request", "after must be the next of an earlier page")
    return int(after or 0)


def _format_time(time: datetime) -> str:
    """Format a time so that texts are in the order of times."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
