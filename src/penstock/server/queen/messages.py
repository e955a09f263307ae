"""Messages as they lie in their queues: listed, looked at, sent to the dead letters and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw

from penstock.core.errors import NotFound
from penstock.db.statements import Statements
from penstock.log.dead_letters import Filter
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.read.ack_by_id import Lane, SaidById
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.http.errors import Problem
from penstock.server.queen import queues
from penstock.server.queen.dead_letters import Limit, Offset
from penstock.server.queen.identifiers import Kind, message_id, moment, pack, read_moment, unpack
from penstock.server.queen.pop import QUEUE_MODE
from penstock.server.queen.push import PRODUCER_HEADER, TRACE_HEADER
from penstock.server.queen.queue_options import theirs
from penstock.server.queen.queues import TAG, Known

_sql = Statements("penstock.server.queen", "messages.sql")

#: So many messages of a queue are looked at for a list.
_MOST_LOOKED_AT = 100_000

_APPEND_ONLY = (
    "a message cannot be taken out of an append-only log before retention drops it: "
    "ack it as dlq, seek the group past it, or delete the queue"
)


class MessagesQuery(msgspec.Struct, rename="camel"):
    """Which messages; of the last hour unless a time is given."""

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
    """How many of the groups are past a message."""

    consumed_by: int
    total_groups: int


class Mode(msgspec.Struct, rename="camel"):
    """Who reads a queue: consumers that share it, groups, or both."""

    has_queue_mode: bool
    bus_groups_count: int
    type: str


class ListedMessage(msgspec.Struct, rename="camel"):
    """A message, and how far it is."""

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
    mode: Mode


class ReaderState(msgspec.Struct, rename="camel"):
    """Whether a group is past a message."""

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
    consumer_groups: list[ReaderState]
    mode: Mode


class MessageMoved(msgspec.Struct, rename="camel"):
    """What was done with a message."""

    partition_id: str
    transaction_id: str
    message: str
    success: bool = True


@dataclass(frozen=True, slots=True)
class _Reader:
    group: str
    next_offset: int
    skipped: list[int]
    lease_end: int
    available_at: datetime
    leased: bool

    def is_past(self, offset: int) -> bool:
        return offset < self.next_offset or offset in self.skipped

    def holds(self, offset: int) -> bool:
        return self.leased and self.next_offset <= offset < self.lease_end and offset not in self.skipped


class _Enough(Exception):
    """No more messages are wanted."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A message without what it holds, of which there may be much."""

    queue: str
    partition: str
    partition_id: int
    offset: int
    id: str
    headers: Mapping[str, str]
    appended_at: datetime

    @classmethod
    def of(cls, event: Event) -> _Seen:
        return cls(
            event.queue, event.partition, event.partition_id, event.offset, event.id, event.headers, event.appended_at
        )


async def list_messages(call: Call) -> ListedMessages:
    """List messages."""
    return await call.services.looks.look(call, _list_messages(call))


async def _list_messages(call: Call) -> ListedMessages:
    query: MessagesQuery = call.query
    call.permit(query.queue or ())
    log = call.services.log
    try:
        since = read_moment(query.from_) if query.from_ else None
        until = read_moment(query.to) if query.to else None
    except ValueError:
        raise Problem("invalid-request", "from and to must be ISO timestamps") from None
    if since is None and until is None:
        since = datetime.now(UTC) - timedelta(hours=1)
    known = [
        each
        for each in await queues.find(log, query.ns or None, query.task or None)
        if (not query.queue or each.name == query.queue) and call.sees(each.name)
    ]
    found: list[tuple[_Seen, ListedMessage]] = []
    readers: dict[int, list[_Reader]] = {}
    wanted = query.offset + query.limit
    # With a status, more may have to be looked at than is shown; without one, the newest are enough.
    most = _MOST_LOOKED_AT if query.status else min(wanted, _MOST_LOOKED_AT)
    for queue in known:
        try:
            events = await _newest(log, queue.name, query.partition or None, since, until, most)
        except NotFound:
            continue  # deleted meanwhile
        dead = await _dead_offsets(log, queue, events)
        for event in events:
            if event.partition_id not in readers:
                readers[event.partition_id] = await _readers(log, event.partition_id)
            listed = _listed(queue, event, readers[event.partition_id], dead)
            if not query.status or listed.status == query.status:
                found.append((event, listed))
        found.sort(key=lambda each: (each[0].appended_at, each[0].partition_id, each[0].offset), reverse=True)
        del found[wanted:]
    groups = {reader.group for some in readers.values() for reader in some}
    return ListedMessages([listed for _, listed in found[query.offset : wanted]], _mode(groups))


async def _newest(
    log: Log, queue: str, partition: str | None, since: datetime | None, until: datetime | None, most: int
) -> list[_Seen]:
    seen: list[_Seen] = []

    def take(event: Event) -> bool:
        seen.append(_Seen.of(event))
        if len(seen) >= most:
            raise _Enough
        return False

    with suppress(_Enough):
        await log.browse(queue, partition=partition, since=since, until=until, matching=take, limit=1)
    return seen


async def get_message(call: Call) -> MessageDetail:
    """Look at a message."""
    lane, event = await _find(call)
    log = call.services.log
    (queue,) = [each for each in await queues.find(log) if each.id == lane.queue_id]
    readers = await _readers(log, lane.partition_id)
    letters = await _letters(log, lane, event)
    listed = _listed(queue, _Seen.of(event), readers, {(lane.partition_id, event.offset)} if letters else set())
    options = theirs(await log.catalog.get(queue.name))
    names = ("leaseTime", "retryLimit", "retryDelay", "ttl", "priority")
    return MessageDetail(
        **{name: getattr(listed, name) for name in ListedMessage.__struct_fields__},
        payload=Raw(event.raw),
        is_encrypted=False,
        error_message=letters[-1][2] if letters else None,
        retry_count=letters[-1][3] if letters else 0,
        queue_config={name: options[name] for name in names},
        consumer_groups=[
            ReaderState(
                each.group,
                each.is_past(event.offset),
                moment(each.available_at) if each.holds(event.offset) else None,
            )
            for each in readers
        ],
        mode=_mode({reader.group for reader in readers}),
    )


async def delete_message(call: Call) -> MessageMoved:
    """Refuse to delete: what was appended stays, and to say otherwise would be a lie."""
    await _find(call)
    raise Problem("conflict", _APPEND_ONLY)


async def clear_queue(call: Call) -> MessageMoved:
    """Refuse to clear, for the same reason."""
    raise Problem("conflict", _APPEND_ONLY)


async def retry_message(call: Call) -> MessageMoved:
    """Send a message that is a dead letter back to the groups that failed on it."""
    lane, event = await _find(call)
    log = call.services.log
    letters = await _letters(log, lane, event)
    if not letters:
        raise Problem("conflict", "the message is in no dead letter: seek the group back to have it delivered again")
    done = await log.redrive(Filter(ids=[letter[0] for letter in letters]))
    for problem in done.problems.values():
        raise Problem("conflict", problem)
    return _moved(call, f"sent back to {', '.join(letter[1] for letter in letters)}")


class BuryQuery(msgspec.Struct, rename="camel"):
    """For which group."""

    consumer_group: str = QUEUE_MODE


async def bury_message(call: Call) -> MessageMoved:
    """Make a message a dead letter of a group, which is then not given it."""
    lane, event = await _find(call)
    query: BuryQuery = call.query
    said = SaidById(query.consumer_group, lane.partition_id, event.id, "dead_letter", "moved by an operator")
    (answer,) = await call.services.log.ack_by_id([said])
    if answer.problem:
        raise Problem("conflict", answer.problem)
    return _moved(call, f"a dead letter of {query.consumer_group} now")


async def _find(call: Call) -> tuple[Lane, Event]:
    """The message that the path names, if the caller may use its queue."""
    call.permit(())
    partition_id = unpack(Kind.PARTITION, call.path["partition"])
    found = (
        None if partition_id is None else await call.services.log.by_id.locate(partition_id, call.path["transaction"])
    )
    if found is None:
        raise NotFound("Message not found")
    call.permit_found(found[0].queue)
    return found


def _moved(call: Call, said: str) -> MessageMoved:
    return MessageMoved(call.path["partition"], call.path["transaction"], said)


async def _readers(log: Log, partition_id: int) -> list[_Reader]:
    async with log.database.connection() as conn:
        rows = await (await conn.execute(_sql["readers"], {"partition": partition_id})).fetchall()
    return [_Reader(*row) for row in rows]


async def _letters(log: Log, lane: Lane, event: Event) -> list[tuple[int, str, str, int]]:
    params = {"queue": lane.queue_id, "partition": lane.partition_id, "offset": event.offset}
    async with log.database.connection() as conn:
        rows: list[tuple[int, str, str, int]] = await (await conn.execute(_sql["letters"], params)).fetchall()
    return rows


async def _dead_offsets(log: Log, queue: Known, events: Sequence[_Seen]) -> set[tuple[int, int]]:
    lanes: dict[int, list[int]] = {}
    for event in events:
        lanes.setdefault(event.partition_id, []).append(event.offset)
    dead: set[tuple[int, int]] = set()
    async with log.database.connection() as conn:
        for lane, offsets in lanes.items():
            params = {"queue": queue.id, "partition": lane, "offsets": offsets}
            rows = await (await conn.execute(_sql["dead_offsets"], params)).fetchall()
            dead |= {(lane, offset) for (offset,) in rows}
    return dead


def _listed(queue: Known, event: _Seen, readers: Sequence[_Reader], dead: set[tuple[int, int]]) -> ListedMessage:
    shared = next((each for each in readers if each.group == QUEUE_MODE), None)
    groups = [each for each in readers if each.group != QUEUE_MODE]
    past = sum(each.is_past(event.offset) for each in groups)
    holders = [each for each in readers if each.holds(event.offset)]
    if (event.partition_id, event.offset) in dead:
        status = "dead_letter"
    elif holders:
        status = "processing"
    elif readers and past == len(groups) and (shared is None or shared.is_past(event.offset)):
        status = "completed"
    else:
        status = "pending"
    by_queue = None
    if shared is not None:
        by_queue = (
            "processing" if shared.holds(event.offset) else "completed" if shared.is_past(event.offset) else "pending"
        )
    headers = event.headers
    return ListedMessage(
        message_id(event.partition_id, event.offset),
        event.id,
        pack(Kind.PARTITION, event.partition_id),
        f"{event.queue}/{event.partition}",
        event.queue,
        event.partition,
        queue.namespace,
        queue.task,
        status,
        by_queue,
        BusStatus(past, len(groups)),
        headers.get(TRACE_HEADER),
        headers.get(PRODUCER_HEADER),
        0,
        moment(event.appended_at),
        moment(max(each.available_at for each in holders)) if holders else None,
    )


def _mode(groups: set[str]) -> Mode:
    buses = len(groups - {QUEUE_MODE})
    shared = QUEUE_MODE in groups
    kind = "hybrid" if shared and buses else "queue" if shared else "bus" if buses else "none"
    return Mode(shared, buses, kind)


_MESSAGE = "/api/v1/messages/{partition}/{transaction}"
_READERS = frozenset({Role.READ, Role.CONSUME})
_ADMIN = frozenset({Role.ADMIN})


def _endpoint(method: str, path: str, handler: Any, summary: str, roles: frozenset[Role], **more: Any) -> Endpoint:
    more = {"asks": True, "answer": MessageMoved, "problems": ("not-found", "conflict"), **more}
    return Endpoint(method, path, handler, summary, TAG, roles=roles, plane=True, **more)


ENDPOINTS = (
    _endpoint(
        "GET",
        "/api/v1/messages",
        list_messages,
        "List messages",
        _READERS,
        query=MessagesQuery,
        answer=ListedMessages,
        problems=("not-found", "conflict", "too-large", "overloaded"),
    ),
    _endpoint("GET", _MESSAGE, get_message, "Look at a message", _READERS, answer=MessageDetail),
    _endpoint("DELETE", _MESSAGE, delete_message, "Refused: a log is append-only", _ADMIN),
    _endpoint("POST", f"{_MESSAGE}/retry", retry_message, "Send a dead message back", _ADMIN),
    _endpoint("POST", f"{_MESSAGE}/dlq", bury_message, "Make a message a dead letter", _ADMIN, query=BuryQuery),
    _endpoint(
        "DELETE",
        "/api/v1/queues/{queue}/clear",
        clear_queue,
        "Refused: a log is append-only",
        _ADMIN,
        asks=False,
    ),
)
