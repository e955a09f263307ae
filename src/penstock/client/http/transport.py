"""The transport that asks a Penstock server."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from penstock.client.http.encode import encode_batches
from penstock.client.http.retrying_http import Exchange, part
from penstock.core.errors import AccessDenied, InvalidOption, InvalidRequest, NotFound, PenstockError
from penstock.core.names import check_name, check_text
from penstock.db.user_connection import UserConnection
from penstock.engine.gates.admin import GateChange, GateInfo
from penstock.log.dead_letters import DeadLetter, Filter, Redrive
from penstock.log.event import Event
from penstock.log.groups import GroupLane, Place
from penstock.log.log import GroupInfo, QueueInfo, Said
from penstock.log.options import check_options
from penstock.log.queue import Queue
from penstock.log.read.ack import AckResult, AllCompleted, check_status, lane_ack
from penstock.log.read.lease import PopRequest
from penstock.log.storage.partitions import Partition
from penstock.log.storage.segments import Upkeep
from penstock.log.transaction import TransactionResult
from penstock.log.write.batch import Batch
from penstock.log.write.result import PushResult
from penstock.protocol import messages

_MICROSECOND = timedelta(microseconds=1)
#: So many numbers fit an address.
_IDS = 500


class _Gates(msgspec.Struct):
    gates: list[GateInfo]


class _Groups(msgspec.Struct):
    groups: list[GroupInfo]


class HttpTransport:
    """The queues of a server.

    Every request can be repeated, so a lost answer is asked for again: a push and a transaction under an idempotency
    key of their own, an ack because it changes nothing the second time, a pop under a new lease that says which one it
    replaces. Only some of many dead letters are sent back once: if that answer is lost, who asked has to look.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._releasing: set[asyncio.Task[None]] = set()

    async def open(self) -> HttpTransport:
        """Get ready; whether the server is there shows with the first call."""
        await self._exchange.open()
        return self

    async def close(self) -> None:
        """Give back what was leased to calls that were cancelled, and end the connections."""
        if self._releasing:
            await asyncio.wait(self._releasing, timeout=5)
        await self._exchange.close()

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
        """Make a queue or change the options that are named."""
        asked = {
            "options": check_options(options or {}),
            "partitioning": partitioning,
            "partitions": partitions,
            "only_new": only_new,
        }
        if partitioning not in (None, "key", "hash"):
            raise InvalidOption(f"partitioning is 'key' or 'hash', not {partitioning!r}", option="partitioning")
        found = await self._exchange.ask("PUT", _queue(name), messages.QueueDocument, body=_json(asked))
        return found.queue()

    async def queue(self, name: str) -> Queue:
        """A queue as it was a moment ago."""
        return (await self._exchange.ask("GET", _queue(name), messages.QueueDocument)).queue()

    async def queues(self) -> list[Queue]:
        """All queues that the caller may see, by name."""
        found = await self._exchange.ask("GET", "queues", messages.Queues)
        return [each.queue() for each in found.queues]

    async def describe(self, name: str) -> QueueInfo:
        """A queue with its size, its groups and its dead letters."""
        found = await self._exchange.ask("GET", f"{_queue(name)}/status", messages.QueueStatus)
        return QueueInfo(found.queue.queue(), found.size, found.groups, found.dead_letters)

    async def partitions(self, queue: str, limit: int | None = None) -> list[Partition]:
        """The partitions of a queue, the fullest first."""
        query = {"limit": 100_000 if limit is None else limit}
        return (
            await self._exchange.ask("GET", f"{_queue(queue)}/partitions", messages.Partitions, query=query)
        ).partitions

    async def delete_queue(self, name: str) -> bool:
        """Delete a queue; False if there was none."""
        return await self._deleted(_queue(name))

    async def repartition(self, name: str, partitioning: str, partitions: int | None = None) -> Queue:
        """Partition a queue differently from now on."""
        if partitioning not in ("key", "hash"):
            raise InvalidOption(f"partitioning is 'key' or 'hash', not {partitioning!r}", option="partitioning")
        body = _json({"partitioning": partitioning, "partitions": partitions})
        found = await self._exchange.ask("POST", f"{_queue(name)}/repartition", messages.QueueDocument, body=body)
        return found.queue()

    # Events

    async def push(self, batches: Sequence[Batch], *, idempotency_key: str | None = None) -> list[PushResult]:
        """Store all batches or none, durably; one result for each."""
        key = str(uuid.uuid4()) if idempotency_key is None else check_name(idempotency_key, "request")
        body = _json(messages.Push(encode_batches(batches)))
        found = await self._exchange.ask("POST", "push", messages.Pushes, body=body, key=key)
        return [each.result() for each in found.results]

    async def pop(self, request: PopRequest) -> list[Event]:
        """Lease and deliver events; none if none came in time."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + request.wait_seconds
        while True:
            wait = min(max(deadline - clock(), 0.0), messages.MOST_WAIT_SECONDS)
            events = await self._pop(request, wait)
            if events or clock() >= deadline:
                return events

    async def _pop(self, request: PopRequest, wait: float) -> list[Event]:
        path = _group(request.queue, request.group)
        # One for all tries: from the second on, what the tries before may have leased is given up first.
        lease_id = uuid.uuid4()
        tries = 0
        place = request.subscribe_from
        pop = messages.Pop(
            request.batch,
            request.partitions,
            request.partition,
            wait,
            request.lease_seconds,
            request.auto_ack,
            place.isoformat() if isinstance(place, datetime) else str(place),
        )

        def body() -> bytes:
            nonlocal tries
            tries += 1
            before = lease_id if tries > 1 else None
            return msgspec.json.encode(msgspec.structs.replace(pop, lease_id=lease_id, instead_of=before))

        try:
            found = await self._exchange.ask("POST", f"{path}/pop", messages.Events, body=body, wait_seconds=wait)
        except BaseException as error:
            # What was refused has leased nothing.
            if not isinstance(error, InvalidRequest | NotFound | AccessDenied):
                self._release(path, lease_id)
            raise
        return found.read(request.queue, request.group)

    def _release(self, path: str, lease_id: uuid.UUID) -> None:
        """Give up what may have been leased to a call that is over; in the background, since it cannot wait for it."""

        async def release() -> None:
            # If it fails, the lease ends by itself.
            with contextlib.suppress(PenstockError):
                await self._exchange.send("POST", f"{path}/release", body=_json({"lease_id": lease_id}))

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
        """Say of every event the same; one result for each."""
        nothing = uuid.UUID(int=0)
        said = messages.Ack(0, 0, nothing, check_status(status), _sane(error), _sane(stage), _sane_or_none(traceback))
        if said.status != "completed":
            return await self._ack(events, said)
        # The last one of a partition speaks for those before it.
        ends: dict[int, Event] = {}
        for event in events:
            last = ends.get(id(event.delivery))
            if last is None or event.offset > last.offset:
                ends[id(event.delivery)] = event
        results = dict(zip(ends, await self._ack(list(ends.values()), said), strict=True))
        done = {lane for lane, result in results.items() if result.success and not result.noop}
        if len(done) == len(ends):
            return AllCompleted(events)
        rest = iter(await self._ack([event for event in events if id(event.delivery) not in done], said))
        return [AckResult(e.id, True) if id(e.delivery) in done else next(rest) for e in events]

    async def _ack(self, events: Sequence[Event], said: messages.Ack) -> list[AckResult]:
        by_group: dict[str, list[int]] = {}
        for index, event in enumerate(events):
            lane_ack(event.delivery, ())
            by_group.setdefault(_group(event.queue, event.group or ""), []).append(index)
        results: dict[int, AckResult] = {}
        for path, indices in by_group.items():
            for start in range(0, len(indices), messages.MOST_EVENTS):
                some = indices[start : start + messages.MOST_EVENTS]
                body = _json(messages.Acks([_lease(events[i], said) for i in some]))
                found = await self._exchange.ask("POST", f"{path}/ack", messages.AckResults, body=body)
                results.update({i: each.result(events[i]) for i, each in zip(some, found.results, strict=True)})
        return [results[i] for i in range(len(events))]

    async def extend(self, events: Sequence[Event], seconds: float = 60.0) -> datetime | None:
        """Make the lease of these events, all of one, last longer; None if it has ended."""
        leases = {event.delivery.lease_id for event in events}
        groups = {_group(event.queue, event.group or "") for event in events}
        if len(leases) != 1 or len(groups) != 1:
            raise InvalidRequest("events of one lease are needed, and these are of " + str(len(leases)))
        body = _json(
            {
                "lease_id": leases.pop(),
                "partition_ids": sorted({event.partition_id for event in events}),
                "seconds": seconds,
            }
        )
        return (await self._exchange.ask("POST", f"{groups.pop()}/extend", messages.Extended, body=body)).lease_until

    async def transact(
        self, acks: Sequence[Said], batches: Sequence[Batch], *, connection: UserConnection | None = None
    ) -> TransactionResult:
        """Ack and push together, or raise and do neither."""
        if connection is not None:
            raise InvalidRequest(
                "a transaction on your own connection is one of the database, which a server cannot join: open the "
                "client with the database's url for it"
            )
        said: list[messages.TransactionAck] = []
        for event, status, error, *more in acks:
            lane_ack(event.delivery, ())
            said.append(
                messages.TransactionAck(
                    partition_id=event.partition_id,
                    offset=event.offset,
                    lease_id=_lease_id(event),
                    status=check_status(status),
                    error=_sane(error),
                    traceback=_sane_or_none(more[0] if more else None),
                    queue=event.queue,
                    group=event.group or "",
                )
            )
        body = _json(messages.Transaction(said, encode_batches(batches)))
        key = str(uuid.uuid4())
        found = await self._exchange.ask("POST", "transaction", messages.TransactionOutcome, body=body, key=key)
        return TransactionResult([each.result() for each in found.results], found.acked)

    async def fetch(self, queue: str, partition: str, offset: int = 0, limit: int = 100) -> list[Event]:
        """Events of a partition from an offset on."""
        return await self._read(queue, {"partition": check_text(partition, "the partition")}, offset, limit)

    async def read(self, queue: str, partition_id: int, offset: int = 0, limit: int = 100) -> list[Event]:
        """The same by the partition's number."""
        return await self._read(queue, {"partition_id": partition_id}, offset, limit)

    async def _read(self, queue: str, where: dict[str, object], offset: int, limit: int) -> list[Event]:
        found: list[Event] = []
        while len(found) < limit:
            room = min(limit - len(found), messages.MOST_EVENTS)
            query = {**where, "offset": found[-1].offset + 1 if found else offset, "limit": room}
            page = await self._exchange.ask("GET", f"{_queue(queue)}/events", messages.Events, query=query)
            found += page.read(queue)
            if not page.more and len(page.events) < room:
                break
        return found

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
        """The newest events that match, newest first; ``matching`` is asked here, page by page."""
        found: list[Event] = []
        seen: set[tuple[int, int]] = set()
        while True:
            room = (
                messages.MOST_EVENTS
                if matching is not None
                else min(limit - len(found) + len(seen), messages.MOST_EVENTS)
            )
            query = {"partition": partition, "key": key, "since": _time(since), "until": _time(until), "limit": room}
            page = await self._exchange.ask("GET", f"{_queue(queue)}/events", messages.Events, query=query)
            new = [event for event in page.read(queue) if (event.partition_id, event.offset) not in seen]
            found += [event for event in new if matching is None or matching(event)]
            if len(found) >= limit or not new or (len(page.events) < room and not page.more):
                return found[:limit]
            # On from the oldest of this page; what was appended at the same moment comes again and is left out.
            oldest = min(event.appended_at for event in new)
            again = {(event.partition_id, event.offset) for event in new if event.appended_at == oldest}
            seen = again | seen if until == oldest + _MICROSECOND else again
            until = oldest + _MICROSECOND

    async def find(
        self, queue: str, event_id: str, *, since: datetime | None = None, until: datetime | None = None
    ) -> Event | None:
        """The newest event with that id."""
        query = {"id": check_text(event_id, "the id"), "since": _time(since), "until": _time(until), "limit": 1}
        found = (await self._exchange.ask("GET", f"{_queue(queue)}/events", messages.Events, query=query)).read(queue)
        return found[0] if found else None

    # Groups

    async def groups(self, queue: str | None = None) -> list[GroupInfo]:
        """Every group, or every one of a queue."""
        query = {"queue": None if queue is None else check_name(queue, "queue")}
        return (await self._exchange.ask("GET", "groups", _Groups, query=query)).groups

    async def group_lanes(self, queue: str, group: str) -> list[GroupLane]:
        """Where a group stands in each partition."""
        return (await self._exchange.ask("GET", f"{_group(queue, group)}/partitions", messages.GroupLanes)).partitions

    async def seek(self, queue: str, group: str, place: Place, *, partition: str | None = None) -> int:
        """Move a group; answers in how many partitions."""
        if partition is not None:
            check_text(partition, "the partition")
        body = _json({"to": place, "partition": partition})
        return (await self._exchange.ask("POST", f"{_group(queue, group)}/seek", messages.Moved, body=body)).partitions

    async def configure_group(self, queue: str, group: str, *, counts: bool) -> None:
        """Say whether a group counts for the depth of its queue."""
        await self._exchange.send("PATCH", _group(queue, group), body=_json({"counts": counts}))

    async def delete_group(self, queue: str, group: str) -> bool:
        """Forget a group; False if there was none."""
        await self.queue(queue)
        return await self._deleted(_group(queue, group))

    # Gates

    async def gates(self, query: str | None, key: str | None = None) -> Sequence[GateInfo]:
        """Gates, lane by lane."""
        asked = {
            name: value for name, value in (("query", query), ("key", key), ("limit", 10_000)) if value is not None
        }
        return (await self._exchange.ask("GET", "gates", _Gates, query=asked)).gates

    async def change_gate(self, query: str, change: GateChange) -> None:
        """Change the limits of a query's gates."""
        await self._exchange.send("PATCH", f"gates/{part(check_name(query, 'query'))}", body=_json(change))

    async def hold_gate(self, query: str, key: str | None, seconds: float) -> None:
        """Let a gate pass nothing for so long."""
        body = _json({"key": key, "seconds": seconds})
        await self._exchange.send("POST", f"gates/{part(check_name(query, 'query'))}/hold", body=body)

    # Dead letters

    async def dead_letters(self, which: Filter, *, limit: int = 100, offset: int = 0) -> list[DeadLetter]:
        """Dead letters that match, newest failure first."""
        found: list[DeadLetter] = []
        for query in _queries(which):
            passed = offset
            while len(found) < limit:
                room = min(limit - len(found), messages.MOST_EVENTS)
                asked = {**query, "limit": room, "offset": passed}
                page = await self._exchange.ask("GET", "dead-letters", messages.DeadLetters, query=asked)
                found += [each.letter() for each in page.dead_letters]
                passed += len(page.dead_letters)
                if not page.more and len(page.dead_letters) < room:
                    break
        return found

    async def count_dead_letters(self, which: Filter) -> int:
        """How many match."""
        counts = [
            await self._exchange.ask("GET", "dead-letters/count", messages.Count, query=query)
            for query in _queries(which)
        ]
        return sum(each.count for each in counts)

    async def redrive(self, which: Filter, *, limit: int | None = 100) -> Redrive:
        """Send the oldest that match back, at most ``limit`` (None: all)."""
        more: dict[str, Any] = {"all": True} if limit is None else {"limit": limit}
        body = _json({**msgspec.structs.asdict(messages.Which.of(which)), **more})
        # Some of those that are left would be others the second time.
        once = limit is not None and which.ids is None
        return await self._exchange.ask("POST", "dead-letters/redrive", Redrive, body=body, once=once)

    async def purge(self, which: Filter) -> int:
        """Delete those that match; answers how many."""
        body = _json({**msgspec.structs.asdict(messages.Which.of(which)), "all": True})
        return (await self._exchange.ask("POST", "dead-letters/purge", messages.Count, body=body)).count

    async def upkeep(self) -> Upkeep:
        """Roll, drop and park what is due, now."""
        return await self._exchange.ask("POST", "upkeep", Upkeep)

    async def _deleted(self, path: str) -> bool:
        try:
            await self._exchange.send("DELETE", path)
        except NotFound:
            return False
        return True


def _queue(name: str) -> str:
    return f"queues/{part(check_name(name, 'queue'))}"


def _group(queue: str, group: str) -> str:
    return f"{_queue(queue)}/groups/{part(check_name(group, 'group'))}"


def _json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise InvalidRequest("a lone surrogate was given, which UTF-8 cannot carry") from None


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _queries(which: Filter) -> list[dict[str, object]]:
    """A filter as query strings: one, or several where it names too many."""
    query: dict[str, object] = {
        "queue": which.queue,
        "group": which.group,
        "key": which.key,
        "error": which.error,
        "since": _time(which.since),
        "until": _time(which.until),
    }
    if which.ids is None:
        return [query]
    ids = list(which.ids)
    return [{**query, "ids": ",".join(map(str, ids[start : start + _IDS]))} for start in range(0, len(ids), _IDS)]


def _lease(event: Event, said: messages.Ack) -> messages.Ack:
    return msgspec.structs.replace(
        said, partition_id=event.partition_id, offset=event.offset, lease_id=_lease_id(event)
    )


def _lease_id(event: Event) -> uuid.UUID:
    lease = event.delivery.lease_id
    if lease is None:
        raise InvalidRequest("this event was read and not popped: it has no lease under which it could be acked")
    return lease


def _sane(text: object) -> str:
    """What is said of an error, whatever it quotes."""
    if not isinstance(text, str):
        raise InvalidRequest(f"what is said of an error must be text, not {type(text).__name__}; give str() of it")
    return text.encode("utf-8", "backslashreplace").decode()


def _sane_or_none(text: object) -> str | None:
    return None if text is None else _sane(text)
