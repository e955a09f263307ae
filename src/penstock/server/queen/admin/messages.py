"""The endpoints that list and show messages, and move them to the dead letters and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw, structs

from penstock.core.errors import NotFound
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.queen.admin.message_status import (
    GroupReader,
    read_dead_letters,
    read_dead_offsets,
    read_readers,
)
from penstock.server.queen.delivery.ack_by_id import AckById, AcksById
from penstock.server.queen.delivery.event_lookup import StoredMessage
from penstock.server.queen.endpoint import queen_routes
from penstock.server.queen.identifiers import (
    PRODUCER_HEADER,
    QUEUE_MODE,
    TRACE_HEADER,
    IdKind,
    decode_id,
    encode_id,
    message_id,
    parse_time_range,
)
from penstock.server.queen.pagination import Limit, Offset
from penstock.server.queen.queue_options import from_queue
from penstock.server.queen.queues import NamespacedQueue, find_queues
from penstock.server.routing.call import ApiCall

routes = queen_routes("not-found", "conflict")

_MESSAGE = "/api/v1/messages/{partition}/{transaction}"

#: A list reads at most this many messages of a queue.
_MAX_READ = 100_000

_APPEND_ONLY = (
    "messages cannot be removed from an append-only log before their retention ends: "
    "ack the message as dlq, seek the group past it, or delete the queue"
)


class MessageListParameters(msgspec.Struct, rename="camel"):
    """Filters and pages the list of messages. Without a time, it covers the last hour."""

    queue: str = ""
    partition: str = ""
    ns: str = ""
    task: str = ""
    status: str = ""
    from_: str = msgspec.field(default="", name="from")
    to: str = ""
    limit: Limit = 200
    offset: Offset = 0


class BusStatus(msgspec.Struct, rename="camel"):
    """How many of the consumer groups have completed a message."""

    consumed_by: int
    total_groups: int


class ConsumptionMode(msgspec.Struct, rename="camel"):
    """Whether consumers share the messages, belong to groups, or both."""

    has_queue_mode: bool
    bus_groups_count: int
    type: str


class ListedMessage(msgspec.Struct, rename="camel"):
    """A message with its status."""

    id: str
    transaction_id: str
    partition_id: str
    queue_path: str
    queue: str
    partition: str
    namespace: str
    task: str
    status: str
    queue_status: str | None
    bus_status: BusStatus
    trace_id: str | None
    producer_sub: str | None
    queue_priority: float
    created_at: datetime
    lease_expires_at: datetime | None


class ListedMessages(msgspec.Struct):
    """Messages, newest first."""

    messages: list[ListedMessage]
    mode: ConsumptionMode


class MessageGroup(msgspec.Struct, rename="camel"):
    """Whether a consumer group has completed a message."""

    name: str
    consumed: bool
    lease_expires_at: datetime | None


class MessageDetail(ListedMessage, rename="camel", kw_only=True):
    """A message with its payload."""

    payload: Raw
    is_encrypted: bool
    error_message: str | None
    retry_count: int
    queue_config: dict[str, Any]
    consumer_groups: list[MessageGroup]
    mode: ConsumptionMode


class MovedMessage(msgspec.Struct, rename="camel"):
    partition_id: str
    transaction_id: str
    message: str
    success: bool = True


class _EnoughMessages(Exception):
    """Ends a search before it reads more messages."""


@dataclass(frozen=True, slots=True)
class _MessageHead:
    """A message without its payload, which may be large."""

    queue: str
    partition: str
    partition_id: int
    offset: int
    id: str
    headers: Mapping[str, str]
    appended_at: datetime


def _head_of(event: Event) -> _MessageHead:
    return _MessageHead(
        event.queue, event.partition, event.partition_id, event.offset, event.id, event.headers, event.appended_at
    )


@routes.get(
    "/api/v1/messages",
    "List messages",
    Role.READ,
    Role.CONSUME,
    checks_queues=True,
    problems=("not-found", "conflict", "too-large"),
)
async def list_messages(call: ApiCall, query: MessageListParameters) -> ListedMessages:
    return await call.services.searches.run(call.request, _list_messages(call, query))


async def _list_messages(call: ApiCall, query: MessageListParameters) -> ListedMessages:
    call.require_access(query.queue or ())
    log = call.log
    since, until = parse_time_range(query.from_, query.to)
    if since is None and until is None:
        since = datetime.now(UTC) - timedelta(hours=1)
    queues = [
        queue
        for queue in await find_queues(log, query.ns or None, query.task or None)
        if (not query.queue or queue.name == query.queue) and call.can_see(queue.name)
    ]
    results: list[tuple[_MessageHead, ListedMessage]] = []
    readers: dict[int, list[GroupReader]] = {}
    end = query.offset + query.limit
    # A filter by status may skip messages, so more must be read than are listed.
    max_read = _MAX_READ if query.status else min(end, _MAX_READ)
    for queue in queues:
        try:
            messages = await _read_newest(log, queue.name, query.partition or None, since, until, max_read)
        except NotFound:
            continue  # deleted meanwhile
        offsets: dict[int, list[int]] = {}
        for message in messages:
            offsets.setdefault(message.partition_id, []).append(message.offset)
        dead = await read_dead_offsets(log, queue.id, offsets)
        for message in messages:
            if message.partition_id not in readers:
                readers[message.partition_id] = await read_readers(log, message.partition_id)
            is_dead = (message.partition_id, message.offset) in dead
            listed = _listed_message(queue, message, readers[message.partition_id], is_dead=is_dead)
            if not query.status or listed.status == query.status:
                results.append((message, listed))
        results.sort(key=_append_order, reverse=True)
        del results[end:]
    groups = {reader.group for of_partition in readers.values() for reader in of_partition}
    return ListedMessages([listed for _, listed in results[query.offset : end]], _consumption_mode(groups))


def _append_order(result: tuple[_MessageHead, ListedMessage]) -> tuple[datetime, int, int]:
    message, _listed = result
    return message.appended_at, message.partition_id, message.offset


async def _read_newest(
    log: Log, queue: str, partition: str | None, since: datetime | None, until: datetime | None, limit: int
) -> list[_MessageHead]:
    heads: list[_MessageHead] = []

    # The filter keeps no event, so the search holds one payload at a time.
    def collect(event: Event) -> bool:
        heads.append(_head_of(event))
        if len(heads) >= limit:
            raise _EnoughMessages
        return False

    with suppress(_EnoughMessages):
        await log.browse(queue, partition=partition, since=since, until=until, matching=collect, limit=1)
    return heads


@routes.get(_MESSAGE, "Show a message", Role.READ, Role.CONSUME, checks_queues=True)
async def get_message(call: ApiCall) -> MessageDetail:
    partition, event = await _message_in_path(call)
    log = call.log
    (queue,) = [queue for queue in await find_queues(log) if queue.id == partition.queue_id]
    readers = await read_readers(log, partition.partition_id)
    letters = await read_dead_letters(log, StoredMessage(partition, event))
    listed = _listed_message(queue, _head_of(event), readers, is_dead=bool(letters))
    options = from_queue(await log.catalog.get(queue.name))
    option_names = ("leaseTime", "retryLimit", "retryDelay", "ttl", "priority")
    return MessageDetail(
        **structs.asdict(listed),
        payload=Raw(event.raw),
        is_encrypted=options["encryptionEnabled"],
        error_message=letters[-1].error if letters else None,
        retry_count=letters[-1].attempts if letters else 0,
        queue_config={name: options[name] for name in option_names},
        consumer_groups=[
            MessageGroup(
                reader.group,
                reader.has_completed(event.offset),
                reader.available_at if reader.has_leased(event.offset) else None,
            )
            for reader in readers
        ],
        mode=_consumption_mode({reader.group for reader in readers}),
    )


@routes.delete(_MESSAGE, "Refused: the log is append-only", Role.ADMIN, checks_queues=True)
async def delete_message(call: ApiCall) -> MovedMessage:
    await _message_in_path(call)
    raise Problem("conflict", _APPEND_ONLY)


@routes.delete("/api/v1/queues/{queue}/clear", "Refused: the log is append-only", Role.ADMIN)
async def clear_queue(call: ApiCall) -> MovedMessage:
    raise Problem("conflict", _APPEND_ONLY)


@routes.post(f"{_MESSAGE}/retry", "Replay a dead message", Role.ADMIN, checks_queues=True)
async def retry_message(call: ApiCall) -> MovedMessage:
    """Replay the dead letters of a message to the groups that failed on it."""
    message = await _message_in_path(call)
    letters = await read_dead_letters(call.log, message)
    if not letters:
        raise Problem("conflict", "the message has no dead letter: seek the group back to have it delivered again")
    done = await call.log.redrive(DeadLetterFilter(ids=[letter.id for letter in letters]))
    for problem in done.problems.values():
        raise Problem("conflict", problem)
    return _moved_message(call, f"replayed to {', '.join(letter.group_name for letter in letters)}")


class DeadLetterGroupParameters(msgspec.Struct, rename="camel"):
    """The group whose dead letter the message becomes."""

    consumer_group: str = QUEUE_MODE


@routes.post(f"{_MESSAGE}/dlq", "Make a message a dead letter", Role.ADMIN, checks_queues=True)
async def dead_letter_message(call: ApiCall, query: DeadLetterGroupParameters) -> MovedMessage:
    """Make a message a dead letter of a group. The group does not receive it again."""
    partition, event = await _message_in_path(call)
    reason = "moved by an operator"
    ack = AckById(query.consumer_group, partition.partition_id, event.id, "dead_letter", reason, by_operator=True)
    (result,) = await call.services.component(AcksById).ack([ack])
    if result.problem:
        raise Problem("conflict", result.problem)
    return _moved_message(call, f"now a dead letter of {query.consumer_group}")


async def _message_in_path(call: ApiCall) -> StoredMessage:
    """Return the message that the path names, if the caller may use its queue."""
    lookup = call.services.component(AcksById).lookup
    message = await lookup.find_event(decode_id(IdKind.PARTITION, call.path["partition"]), call.path["transaction"])
    if message is None:
        raise NotFound("Message not found")
    call.require_access_silently(message.partition.queue)
    return message


def _moved_message(call: ApiCall, text: str) -> MovedMessage:
    return MovedMessage(call.path["partition"], call.path["transaction"], text)


def _listed_message(
    queue: NamespacedQueue, message: _MessageHead, readers: Sequence[GroupReader], *, is_dead: bool
) -> ListedMessage:
    offset = message.offset
    shared = next((reader for reader in readers if reader.group == QUEUE_MODE), None)
    groups = [reader for reader in readers if reader.group != QUEUE_MODE]
    completed = sum(reader.has_completed(offset) for reader in groups)
    leasing = [reader for reader in readers if reader.has_leased(offset)]
    if is_dead:
        status = "dead_letter"
    elif leasing:
        status = "processing"
    elif readers and all(reader.has_completed(offset) for reader in readers):
        status = "completed"
    else:
        status = "pending"
    headers = message.headers
    return ListedMessage(
        message_id(headers, message.partition_id, offset),
        message.id,
        encode_id(IdKind.PARTITION, message.partition_id),
        f"{message.queue}/{message.partition}",
        message.queue,
        message.partition,
        queue.namespace,
        queue.task,
        status,
        None if shared is None else shared.status_of(offset),
        BusStatus(completed, len(groups)),
        headers.get(TRACE_HEADER),
        headers.get(PRODUCER_HEADER),
        0,
        message.appended_at,
        max((reader.available_at for reader in leasing), default=None),
    )


def _consumption_mode(groups: set[str]) -> ConsumptionMode:
    bus_groups = len(groups - {QUEUE_MODE})
    is_shared = QUEUE_MODE in groups
    mode = "hybrid" if is_shared and bus_groups else "queue" if is_shared else "bus" if bus_groups else "none"
    return ConsumptionMode(is_shared, bus_groups, mode)
