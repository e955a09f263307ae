"""The transport to a Penstock server over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import NoneType

import msgspec

from penstock.client.http.coordination import HttpCoordination, with_event_ids
from penstock.client.http.dead_letters import HttpDeadLetters
from penstock.client.http.encode import encode_batches
from penstock.client.http.retrying_http import RetryingHttpClient, quote_segment
from penstock.core.errors import AccessDenied, InvalidRequest, NotFound, PenstockError
from penstock.core.names import check_name, check_text
from penstock.db.user_connection import UserConnection
from penstock.engine.gates.gate_admin import GateChange, GateInfo
from penstock.engine.results.result_reader import PAGE_ROWS, RowPage, RowRequest
from penstock.log.coordination.kv import KvOperation
from penstock.log.coordination.timers import TimerOperation
from penstock.log.event import Event
from penstock.log.groups import PartitionPosition
from penstock.log.queue import Queue
from penstock.log.queue_info import GroupInfo, QueueInfo
from penstock.log.queue_options import check_options, check_partitioning
from penstock.log.read.ack import AckResult, CompletedAckResults, EventStatus, check_status, partition_ack
from penstock.log.read.ack_request import Ack, TransactionAck
from penstock.log.read.pop_request import PopRequest
from penstock.log.start_position import StartPosition
from penstock.log.storage.partitions import Partition
from penstock.log.transaction import TransactionResult
from penstock.log.upkeep import Upkeep
from penstock.log.write.encode.batch import Batch
from penstock.log.write.push_result import PushResult
from penstock.protocol import messages
from penstock.protocol.events import EventList

_MICROSECOND = timedelta(microseconds=1)


class _GateList(msgspec.Struct):
    gates: list[GateInfo]


class _GroupList(msgspec.Struct):
    groups: list[GroupInfo]


class HttpTransport(HttpDeadLetters, HttpCoordination):
    """The queues of a server.

    Every request can be repeated, so a request whose response is lost is sent again. Pushes and transactions carry an
    idempotency key, a repeated ack changes nothing, and a repeated pop names the lease that it replaces. The exception
    is a redrive with a limit: a second one would send other dead letters.
    """

    def __init__(self, http: RetryingHttpClient) -> None:
        super().__init__(http)
        self._releasing: set[asyncio.Task[None]] = set()

    async def open(self) -> HttpTransport:
        await self._http.open()
        return self

    async def close(self) -> None:
        if self._releasing:
            await asyncio.wait(self._releasing, timeout=5)
        await self._http.close()

    # Queues

    async def configure(
        self,
        name: str,
        options: Mapping[str, object] | None = None,
        *,
        partitioning: str | None = None,
        partitions: int | None = None,
        only_new: bool = False,
    ) -> Queue:
        configuration = {
            "options": check_options(options or {}),
            "partitioning": partitioning,
            "partitions": partitions,
            "only_new": only_new,
        }
        if partitioning is not None:
            check_partitioning(partitioning, partitions)
        document = await self._http.request("PUT", _queue(name), messages.QueueDocument, body=configuration)
        return document.queue()

    async def queue(self, name: str) -> Queue:
        return (await self._http.request("GET", _queue(name), messages.QueueDocument)).queue()

    async def queues(self) -> list[Queue]:
        response = await self._http.request("GET", "queues", messages.QueueList)
        return [document.queue() for document in response.queues]

    async def describe(self, name: str) -> QueueInfo:
        status = await self._http.request("GET", f"{_queue(name)}/status", messages.QueueStatus)
        return QueueInfo(status.queue.queue(), status.size, status.groups, status.dead_letters)

    async def partitions(self, queue: str, limit: int | None = None) -> list[Partition]:
        query = {"limit": 100_000 if limit is None else limit}
        path = f"{_queue(queue)}/partitions"
        return (await self._http.request("GET", path, messages.PartitionList, query=query)).partitions

    async def delete_queue(self, name: str) -> bool:
        return await self._delete(_queue(name))

    async def repartition(self, name: str, partitioning: str, partitions: int | None = None) -> Queue:
        check_partitioning(partitioning, partitions)
        body = {"partitioning": partitioning, "partitions": partitions}
        document = await self._http.request("POST", f"{_queue(name)}/repartition", messages.QueueDocument, body=body)
        return document.queue()

    # Events

    async def push(self, batches: Sequence[Batch], *, idempotency_key: str | None = None) -> list[PushResult]:
        key = str(uuid.uuid4()) if idempotency_key is None else check_name(idempotency_key, "request")
        body = messages.PushRequest(encode_batches(batches))
        response = await self._http.request("POST", "push", messages.PushResponse, body=body, key=key)
        return [batch.result() for batch in response.results]

    async def pop(self, request: PopRequest) -> list[Event]:
        clock = asyncio.get_running_loop().time
        deadline = clock() + request.wait_seconds
        while True:
            wait = min(max(deadline - clock(), 0.0), messages.MAX_WAIT_SECONDS)
            events = await self._pop(request, wait)
            if events or clock() >= deadline:
                return events

    async def _pop(self, request: PopRequest, wait: float) -> list[Event]:
        path = _group(request.queue, request.group)
        # All attempts use one lease id. A repeated attempt first releases the lease of the attempt before.
        lease_id = uuid.uuid4()
        attempts = 0
        start = request.subscribe_from
        pop = messages.PopOptions(
            request.batch,
            request.partitions,
            request.partition,
            wait,
            request.lease_seconds,
            request.auto_ack,
            start.isoformat() if isinstance(start, datetime) else str(start),
        )

        def body() -> bytes:
            nonlocal attempts
            attempts += 1
            before = lease_id if attempts > 1 else None
            return msgspec.json.encode(msgspec.structs.replace(pop, lease_id=lease_id, instead_of=before))

        try:
            response = await self._http.request("POST", f"{path}/pop", EventList, body=body, wait_seconds=wait)
        except BaseException as error:
            # A pop that was refused has leased nothing.
            if not isinstance(error, InvalidRequest | NotFound | AccessDenied):
                self._release(path, lease_id)
            raise
        return response.read(request.queue, request.group)

    def _release(self, path: str, lease_id: uuid.UUID) -> None:
        """Release the lease of a call that has ended, in the background: a cancelled call cannot wait."""

        async def release() -> None:
            # If this fails, the lease expires.
            with contextlib.suppress(PenstockError):
                await self._http.request("POST", f"{path}/release", NoneType, body={"lease_id": lease_id})

        task = asyncio.create_task(release())
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def ack(
        self,
        events: Sequence[Event],
        status: object = True,
        *,
        error: str = "",
        stage: str = "consumer",
        traceback: str | None = None,
    ) -> Sequence[AckResult]:
        no_lease = uuid.UUID(int=0)
        template = Ack(
            0, 0, no_lease, check_status(status), _escape(error), _escape(stage), _escape_optional(traceback)
        )
        if template.status != "completed":
            return await self._ack(events, template)
        # Completing the last event of a delivery completes those before it.
        last_events: dict[int, Event] = {}
        for event in events:
            last = last_events.get(id(event.delivery))
            if last is None or event.offset > last.offset:
                last_events[id(event.delivery)] = event
        results = dict(zip(last_events, await self._ack(list(last_events.values()), template), strict=True))
        completed = {delivery for delivery, result in results.items() if result.success and not result.noop}
        if len(completed) == len(last_events):
            return CompletedAckResults(events)
        rest = iter(await self._ack([event for event in events if id(event.delivery) not in completed], template))
        return [AckResult(event.id, True) if id(event.delivery) in completed else next(rest) for event in events]

    async def _ack(self, events: Sequence[Event], template: Ack) -> list[AckResult]:
        by_group: dict[str, list[int]] = {}
        for index, event in enumerate(events):
            partition_ack(event.delivery, ())
            by_group.setdefault(_group(event.queue, event.group or ""), []).append(index)
        results: dict[int, AckResult] = {}
        for path, indices in by_group.items():
            for start in range(0, len(indices), messages.MAX_EVENTS):
                page = indices[start : start + messages.MAX_EVENTS]
                body = messages.AckRequest([_fill_ack(template, events[i]) for i in page])
                response = await self._http.request("POST", f"{path}/ack", messages.AckResponse, body=body)
                replies = zip(page, response.results, strict=True)
                results.update({i: reply.result(events[i]) for i, reply in replies})
        return [results[i] for i in range(len(events))]

    async def extend(self, events: Sequence[Event], seconds: float = 60.0) -> datetime | None:
        leases = {event.delivery.lease_id for event in events}
        groups = {_group(event.queue, event.group or "") for event in events}
        if len(leases) != 1 or len(groups) != 1:
            raise InvalidRequest(f"the events must be of one lease and one group, not of {len(leases)} leases")
        body = {
            "lease_id": leases.pop(),
            "partition_ids": sorted({event.partition_id for event in events}),
            "seconds": seconds,
        }
        path = f"{groups.pop()}/extend"
        return (await self._http.request("POST", path, messages.ExtendResponse, body=body)).lease_until

    async def transact(
        self,
        acks: Sequence[EventStatus],
        batches: Sequence[Batch],
        *,
        connection: UserConnection | None = None,
        kv: Sequence[KvOperation] = (),
        timers: Sequence[TimerOperation] = (),
    ) -> TransactionResult:
        if connection is not None:
            raise InvalidRequest(
                "a server cannot join a transaction on your own connection: open the client with the url of the "
                "database instead"
            )
        requested: list[TransactionAck] = []
        for event, status, error, *more in acks:
            partition_ack(event.delivery, ())
            requested.append(
                TransactionAck(
                    partition_id=event.partition_id,
                    offset=event.offset,
                    lease_id=_lease_id(event),
                    status=check_status(status),
                    error=_escape(error),
                    traceback=_escape_optional(more[0] if more else None),
                    queue=event.queue,
                    group=event.group or "",
                )
            )
        body = messages.TransactionRequest(requested, encode_batches(batches), [*kv], with_event_ids(timers))
        key = str(uuid.uuid4())
        response = await self._http.request("POST", "transaction", messages.TransactionResponse, body=body, key=key)
        return TransactionResult([batch.result() for batch in response.results], response.acked, kv=response.kv)

    async def fetch(self, queue: str, partition: str, offset: int = 0, limit: int = 100) -> list[Event]:
        return await self._read(queue, {"partition": check_text(partition, "the partition")}, offset, limit)

    async def read(self, queue: str, partition_id: int, offset: int = 0, limit: int = 100) -> list[Event]:
        return await self._read(queue, {"partition_id": partition_id}, offset, limit)

    async def _read(self, queue: str, partition: dict[str, object], offset: int, limit: int) -> list[Event]:
        events: list[Event] = []
        while len(events) < limit:
            room = min(limit - len(events), messages.MAX_EVENTS)
            query = {**partition, "offset": events[-1].offset + 1 if events else offset, "limit": room}
            page = await self._http.request("GET", f"{_queue(queue)}/events", EventList, query=query)
            events += page.read(queue)
            if not page.more and len(page.events) < room:
                break
        return events

    async def browse(
        self,
        queue: str,
        *,
        partition: str | None = None,
        key: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        matching: Callable[[Event], bool] | None = None,
        limit: int = 100,
    ) -> list[Event]:
        events: list[Event] = []
        seen: set[tuple[int, int]] = set()
        while True:
            room = messages.MAX_EVENTS
            if matching is None:
                room = min(limit - len(events) + len(seen), room)
            query = {"partition": partition, "key": key, "since": _time(since), "until": _time(until), "limit": room}
            page = await self._http.request("GET", f"{_queue(queue)}/events", EventList, query=query)
            new = [event for event in page.read(queue) if (event.partition_id, event.offset) not in seen]
            events += [event for event in new if matching is None or matching(event)]
            if len(events) >= limit or not new or (len(page.events) < room and not page.more):
                return events[:limit]
            # The next page begins at the oldest event of this one, and skips the events of the same moment.
            oldest = min(event.appended_at for event in new)
            repeated = {(event.partition_id, event.offset) for event in new if event.appended_at == oldest}
            seen = repeated | seen if until == oldest + _MICROSECOND else repeated
            until = oldest + _MICROSECOND

    async def find(
        self, queue: str, event_id: str, *, since: datetime | None = None, until: datetime | None = None
    ) -> Event | None:
        query = {"id": check_text(event_id, "the id"), "since": _time(since), "until": _time(until), "limit": 1}
        response = await self._http.request("GET", f"{_queue(queue)}/events", EventList, query=query)
        events = response.read(queue)
        return events[0] if events else None

    # Groups

    async def groups(self, queue: str | None = None) -> list[GroupInfo]:
        query = {"queue": None if queue is None else check_name(queue, "queue")}
        return (await self._http.request("GET", "groups", _GroupList, query=query)).groups

    async def group_positions(self, queue: str, group: str) -> list[PartitionPosition]:
        path = f"{_group(queue, group)}/partitions"
        return (await self._http.request("GET", path, messages.PartitionPositionList)).partitions

    async def seek(self, queue: str, group: str, position: StartPosition, *, partition: str | None = None) -> int:
        if partition is not None:
            check_text(partition, "the partition")
        body = {"to": position, "partition": partition}
        path = f"{_group(queue, group)}/seek"
        return (await self._http.request("POST", path, messages.SeekResponse, body=body)).partitions

    async def configure_group(self, queue: str, group: str, *, counts: bool) -> None:
        await self._http.request("PATCH", _group(queue, group), NoneType, body={"counts": counts})

    async def delete_group(self, queue: str, group: str) -> bool:
        await self.queue(queue)
        return await self._delete(_group(queue, group))

    # Gates

    async def gates(self, query: str | None, key: str | None = None) -> Sequence[GateInfo]:
        parameters = {"query": query, "key": key, "limit": 10_000}
        return (await self._http.request("GET", "gates", _GateList, query=parameters)).gates

    async def change_gate(self, query: str, change: GateChange) -> None:
        await self._http.request("PATCH", _gate(query), NoneType, body=change)

    async def hold_gate(self, query: str, key: str | None, seconds: float) -> None:
        body = {"key": key, "seconds": seconds}
        await self._http.request("POST", f"{_gate(query)}/hold", NoneType, body=body)

    # Results

    async def result_rows(self, request: RowRequest) -> RowPage:
        query = {
            "view": request.view,
            "key": request.key,
            "since": _time(request.since),
            "until": _time(request.until),
            "include_open": "true" if request.include_open else None,
            "limit": PAGE_ROWS,
        }
        path = f"queries/{quote_segment(check_name(request.query, 'query'))}/rows"
        return await self._http.request("GET", path, RowPage, query=query)

    async def upkeep(self) -> Upkeep:
        return await self._http.request("POST", "upkeep", Upkeep)

    async def _delete(self, path: str) -> bool:
        try:
            await self._http.request("DELETE", path, NoneType)
        except NotFound:
            return False
        return True


def _queue(name: str) -> str:
    return f"queues/{quote_segment(check_name(name, 'queue'))}"


def _group(queue: str, group: str) -> str:
    return f"{_queue(queue)}/groups/{quote_segment(check_name(group, 'group'))}"


def _gate(query: str) -> str:
    return f"gates/{quote_segment(check_name(query, 'query'))}"


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _fill_ack(template: Ack, event: Event) -> Ack:
    return msgspec.structs.replace(
        template, partition_id=event.partition_id, offset=event.offset, lease_id=_lease_id(event)
    )


def _lease_id(event: Event) -> uuid.UUID:
    lease = event.delivery.lease_id
    if lease is None:
        raise InvalidRequest("this event was read and not popped, so it has no lease to acknowledge")
    return lease


def _escape(text: object) -> str:
    """Replace the surrogates in the text of an error, which UTF-8 cannot encode."""
    if not isinstance(text, str):
        raise InvalidRequest(f"the error, stage and traceback must be text, not {type(text).__name__}; use str()")
    return text.encode("utf-8", "backslashreplace").decode()


def _escape_optional(text: object) -> str | None:
    return None if text is None else _escape(text)
