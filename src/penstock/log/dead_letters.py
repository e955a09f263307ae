"""Dead letters: events that could not be processed, where and why, and the way back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.core import json
from penstock.core.errors import CorruptChunk, InvalidRequest, NotFound, shown
from penstock.core.names import check_name, check_text
from penstock.db.statements import Statements
from penstock.log.event import Event
from penstock.log.options import MAX_COUNT, MAX_ID, check_moment, check_whole
from penstock.log.queue import DEFAULT_KEY
from penstock.log.read.reader import read_events
from penstock.log.storage import chunk
from penstock.log.write.append import moved_on
from penstock.log.write.encode import Piece, micros_of
from penstock.log.write.flush import Request

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from penstock.core.clock import Clock
    from penstock.log.catalog import Catalog
    from penstock.log.event import Delivery
    from penstock.log.groups import Groups
    from penstock.log.queue import Queue
    from penstock.log.read.position import Position, Signal
    from penstock.log.write.append import Appender

_sql = Statements("penstock.log", "dead_letters.sql")
_MATCHING = _sql["matching"].replace("{kind}", _sql["kind"])

#: The header by which a redriven event is known for the dead letter it was.
HEADER = "penstock-dead-letter"
#: The stage of dead letters whose events could not be read: their data is null, and a redrive reads them again.
DAMAGED = "damaged chunk"
#: How many a redrive takes when it is not told.
REDRIVE_LIMIT = 100
#: How much of them it holds at a time, unless one alone has more.
_MOST_BYTES = 16 << 20
#: Of so many it is said why they could not be sent back.
_MOST_PROBLEMS = 1000
#: Of each queue so many are looked at to tell what kinds of error there are.
KINDS_OF = 10_000
_MOST_KINDS = 200


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that could not be processed, with where and why."""

    id: int
    queue: str
    partition: str | None
    partition_id: int
    offset: int
    group: str
    key: str | None
    event_id: str | None
    event_time: datetime | None
    appended_at: datetime
    headers: dict[str, str]
    raw: bytes
    stage: str
    error: str
    traceback: str | None
    attempts: int
    failed_at: datetime
    first_failed_at: datetime
    redrives: int
    redriven_at: datetime | None
    history: list[dict[str, Any]]

    @property
    def data(self) -> Any:
        """The event's content."""
        return json.decode(self.raw)

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None

    def get(self, name: str, default: Any = None) -> Any:
        """The field of that name, or the default."""
        return getattr(self, name, default)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters: all conditions that are given must hold."""

    ids: Sequence[int] | None = None
    queue: str | None = None
    group: str | None = None
    key: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    partition: str | None = None
    #: What the errors have in common, with the stage that they came from: as :class:`DeadLetterKind` has them.
    kind: str | None = None
    stage: str | None = None

    def __post_init__(self) -> None:
        if self.ids is not None:
            ids: object = self.ids
            if isinstance(ids, str | bytes) or not isinstance(ids, Collection):
                raise InvalidRequest(f"ids must be a list of numbers of dead letters, not {shown(ids)}")
            for id in ids:
                check_whole("the number of a dead letter", id, -MAX_ID, MAX_ID)
        if self.queue is not None:
            check_name(self.queue, "queue")
        if self.group is not None:
            check_name(self.group, "group")
        for name in ("key", "error", "partition", "kind", "stage"):
            if getattr(self, name) is not None:
                check_text(getattr(self, name), name)
        check_moment("since", self.since)
        check_moment("until", self.until)


@dataclass(frozen=True, slots=True)
class DeadLetterKind:
    """Dead letters of one group that failed alike; ``is_whole`` is false where there are more than were looked at."""

    queue: str
    group: str
    stage: str
    kind: str
    count: int
    first_failed_at: datetime
    failed_at: datetime
    newest: int
    is_whole: bool = True

    @property
    def filter(self) -> Filter:
        """These and no others."""
        # What was never an event belongs to no group, which is no name that could be asked for.
        return Filter(queue=self.queue, group=self.group or None, kind=self.kind, stage=self.stage)


@dataclass(frozen=True, slots=True)
class Redrive:
    """How many dead letters were sent back, and which could not be; of very many, the first."""

    replayed: int
    failed: int
    problems: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Lost:
    """A damaged chunk, and what was said of events in it."""

    problem: CorruptChunk
    signals: list[Signal] = field(default_factory=list)


class DeadLetters:
    """The dead letters of all queues."""

    def __init__(self, pool: AsyncConnectionPool[Any], catalog: Catalog, clock: Clock) -> None:
        self._pool = pool
        self._catalog = catalog
        self._clock = clock

    async def bury(
        self,
        conn: AsyncConnection[Any],
        queue: Queue,
        group: str,
        partition_id: int,
        dead: Sequence[tuple[Signal, int]],
        copy: Event | None = None,
    ) -> None:
        """Store events as dead letters, in the transaction that moves the group past them, or has long moved it.

        Of one that was read long ago, and that retention may have dropped, there is a copy.
        """
        new: list[dict[str, Any]] = []
        event: Event | None = None
        lost: list[_Lost] = []
        for signal, attempts in dead:
            event = None if event is None else event.sibling(signal.offset)
            if event is None:
                if not (lost and lost[-1].problem.start <= signal.offset < lost[-1].problem.end):
                    damaged: list[CorruptChunk] = []
                    found = await read_events(conn, queue, partition_id, signal.offset, 1, damaged)
                    lost += [_Lost(problem) for problem in damaged]
                    event = found[0] if found else copy
                if lost and lost[-1].problem.start <= signal.offset < lost[-1].problem.end:
                    lost[-1].signals.append(signal)
                    continue
                if event is None:
                    raise NotFound(f"queue {queue.name!r}: the event {partition_id}/{signal.offset} is no longer there")
            params = {
                "queue": queue.id,
                "partition": partition_id,
                "offset": signal.offset,
                "group": group,
                "key": event.key,
                "event_id": event.given_id,
                "event_time": event.event_time,
                "appended_at": event.appended_at,
                "headers": json.encode(event.headers).decode() if event.headers else None,
                "data": event.raw.decode(),
                "stage": _clean(signal.stage),
                "error": _clean(signal.error or "no reason given"),
                "traceback": None if signal.traceback is None else _clean(signal.traceback),
                "attempts": attempts,
                "skew": self._clock.skew,
            }
            before = event.headers.get(HEADER, "") if event.is_redriven else ""
            if before.isdigit():
                params["id"] = int(before)
                if await (await conn.execute(_sql["bury_again"], params)).fetchone() is not None:
                    continue
            new.append(params)
        for params in new:
            await conn.execute(_sql["bury"], params)
        for each in lost:
            # A consumer may have failed on what was whole then.
            told = {signal.error for signal in each.signals if signal.stage != DAMAGED}
            error = "; ".join([*sorted(told), str(each.problem)])
            offsets = [signal.offset for signal in each.signals]
            await self._bury_unread(conn, group, each.problem, offsets, error)

    async def bury_damaged(
        self, conn: AsyncConnection[Any], delivery: Delivery, problem: CorruptChunk, before: Position
    ) -> None:
        """Store as dead letters what a damaged chunk holds from a position on."""
        offsets = [o for o in range(max(before.next_offset, problem.start), problem.end) if o not in before.skipped]
        await self._bury_unread(conn, delivery.group or "", problem, offsets, str(problem))

    async def _bury_unread(
        self, conn: AsyncConnection[Any], group: str, problem: CorruptChunk, offsets: Sequence[int], error: str
    ) -> None:
        params = {
            "partition": problem.partition_id,
            "offsets": list(offsets),
            "group": group,
            "no_key": DEFAULT_KEY,
            "appended_at": problem.appended_at,
            "stage": DAMAGED,
            "error": _clean(error),
            "skew": self._clock.skew,
        }
        await conn.execute(_sql["bury_damaged"], params)

    async def page(self, which: Filter, *, limit: int = 100, offset: int = 0) -> list[DeadLetter]:
        """Newest failure first, a page at a time."""
        found, _ = await self.part_of_page(which, limit, offset, MAX_COUNT)
        return found

    async def part_of_page(
        self, which: Filter, limit: int, offset: int, max_bytes: int
    ) -> tuple[list[DeadLetter], bool]:
        """The first of a page as far as they fit so many bytes, at least one, and whether some did not."""
        return await self._list(which, limit=limit, offset=offset, max_bytes=max_bytes, oldest_first=False)

    async def queues(self, which: Filter) -> set[str]:
        """The names of the queues whose they are."""
        params = await self._params(which)
        async with self._pool.connection() as conn:
            rows = await (await conn.execute(_matching("queues"), params)).fetchall()
        return {name for (name,) in rows}

    async def count(self, which: Filter) -> int:
        """How many there are."""
        params = await self._params(which)
        async with self._pool.connection() as conn:
            row = await (await conn.execute(_matching("count"), params)).fetchone()
        return int(row[0]) if row is not None else 0

    async def get(self, id: int) -> DeadLetter:
        """One of them, whole."""
        found = await self.page(Filter(ids=[id]), limit=1)
        if not found:
            raise NotFound(f"there is no dead letter {id}; it may have been redriven or purged")
        return found[0]

    async def purge(self, which: Filter) -> int:
        """Delete for good; answers how many."""
        params = await self._params(which)
        async with self._pool.connection() as conn:
            cursor = await conn.execute(_matching("purge"), params)
        return int(cursor.rowcount)

    async def ids(self, which: Filter, limit: int | None) -> list[int]:
        """The numbers of those that match, the oldest first, at most ``limit`` (None: all)."""
        params = {**await self._params(which), "limit": limit}
        async with self._pool.connection() as conn:
            rows = await (await conn.execute(_matching("ids"), params)).fetchall()
        return [id for (id,) in rows]

    async def kinds(self, queue: str | None = None) -> list[DeadLetterKind]:
        """What went wrong, by queue, group and kind of error; what failed last first."""
        params = {
            "queue": None if queue is None else (await self._catalog.get(queue)).id,
            "most": KINDS_OF,
            "limit": _MOST_KINDS,
        }
        async with self._pool.connection() as conn:
            statement = _sql["kinds"].replace("{kind}", _sql["kind"])
            rows = await (await conn.execute(statement, params)).fetchall()
        return [DeadLetterKind(*row) for row in rows]

    async def oldest(self, which: Filter, limit: int, max_bytes: int) -> tuple[list[DeadLetter], bool]:
        """The same of the ones that have waited longest."""
        return await self._list(which, limit=limit, offset=0, max_bytes=max_bytes, oldest_first=True)

    async def _list(
        self, which: Filter, *, limit: int, offset: int, max_bytes: int, oldest_first: bool
    ) -> tuple[list[DeadLetter], bool]:
        params = await self._params(which)
        params.update(limit=limit, offset=offset, oldest_first=oldest_first, most=max_bytes)
        async with self._pool.connection() as conn:
            rows = await (await conn.execute(_matching("list"), params)).fetchall()
        return [_letter(row[:-1]) for row in rows], len(rows) < (rows[0][-1] if rows else 0)

    async def _params(self, which: Filter) -> dict[str, Any]:
        queue = None if which.queue is None else (await self._catalog.get(which.queue)).id
        return {
            "ids": None if which.ids is None else list(which.ids),
            "queue": queue,
            "group": which.group,
            "key": which.key,
            "error": which.error,
            "since": which.since,
            "until": which.until,
            "partition": which.partition,
            "kind": which.kind,
            "stage": which.stage,
        }


class Redriver:
    """Sends dead letters back: appended to their queue again, for the group that failed on them alone."""

    def __init__(
        self,
        pool: AsyncConnectionPool[Any],
        catalog: Catalog,
        groups: Groups,
        dead_letters: DeadLetters,
        appender: Appender,
        clock: Clock,
    ) -> None:
        self._pool = pool
        self._catalog = catalog
        self._groups = groups
        self._dead_letters = dead_letters
        self._appender = appender
        self._clock = clock

    async def redrive(
        self, which: Filter, *, limit: int | None = REDRIVE_LIMIT, edited: Mapping[int, bytes] | None = None
    ) -> Redrive:
        """Send back the oldest that match, at most ``limit`` (None: all); some with other data than they had."""
        replayed = failed = 0
        problems: dict[int, str] = {}
        # Their numbers first: what fails again meanwhile is not sent back twice, and all at once may be much to hold.
        ids = await self._dead_letters.ids(which, limit)
        done = 0
        while done < len(ids):
            some = ids[done : done + REDRIVE_LIMIT]
            letters, is_cut = await self._dead_letters.oldest(replace(which, ids=some), len(some), _MOST_BYTES)
            done += some.index(letters[-1].id) + 1 if is_cut else len(some)
            for name, its in groupby(sorted(letters, key=attrgetter("queue")), key=attrgetter("queue")):
                mine = list(its)
                refused = await self._some(name, mine, edited or {})
                replayed += len(mine) - len(refused)
                failed += len(refused)
                problems.update(islice(refused.items(), _MOST_PROBLEMS - len(problems)))
        return Redrive(replayed, failed, problems)

    async def _some(self, name: str, letters: Sequence[DeadLetter], edited: Mapping[int, bytes]) -> dict[int, str]:
        """Send some of one queue back in one transaction; answers which could not be, and why."""
        while True:
            queue = await self._catalog.refresh(name)
            problems: dict[int, str] = {}
            pieces: dict[int, Piece] = {}
            for letter in letters:
                group = await self._groups.get(queue, letter.group)
                if group is None:
                    problems[letter.id] = _gone(letter)
                    continue
                try:
                    whole = letter
                    if letter.id in edited:
                        whole = replace(letter, raw=edited[letter.id])
                    elif letter.stage == DAMAGED:
                        whole = await self._read_again(queue, letter)
                    pieces[letter.id] = _piece(queue, whole, group.id)
                except (CorruptChunk, NotFound) as error:
                    problems[letter.id] = str(error)
            lanes = await self._appender.lanes([Request([list(pieces.values())])])
            try:
                async with self._pool.connection() as conn, conn.transaction():
                    wanted = {"groups": list({piece.target_group for piece in pieces.values()})}
                    groups = await (await conn.execute(_sql["share_groups"], wanted)).fetchall()
                    for letter in letters:
                        # What was known of the group may be a second old.
                        if letter.id in pieces and (pieces[letter.id].target_group,) not in groups:
                            del pieces[letter.id]
                            self._groups.forget(queue, letter.group)
                            problems[letter.id] = _gone(letter)
                    rows = await (await conn.execute(_sql["claim"], {"ids": list(pieces)})).fetchall()
                    claimed = [id for (id,) in rows]
                    request = Request([[pieces[id] for id in claimed]])
                    await self._appender.append_on(conn, [request], lanes)
                    await conn.execute(_sql["mark_redriven"], {"ids": claimed, "skew": self._clock.skew})
                    for id in edited.keys() & set(claimed):
                        change = {"id": id, "data": edited[id].decode(), "skew": self._clock.skew}
                        await conn.execute(_sql["edit"], change)
            except psycopg.ProgrammingError as error:
                if not moved_on(error):
                    raise
                continue
            self._appender.announce([request])
            for letter in letters:
                if letter.id in pieces and letter.id not in claimed:
                    problems[letter.id] = (
                        f"it was redriven {letter.redrives} times and the cap of the queue is {queue.max_redrives}, "
                        "or somebody else is at it; raise max_redrives, or purge it"
                    )
            return problems

    async def _read_again(self, queue: Queue, letter: DeadLetter) -> DeadLetter:
        """A dead letter of a damaged chunk with what it held, if that has been restored."""
        async with self._pool.connection() as conn:
            found = await read_events(conn, queue, letter.partition_id, letter.offset, 1)
        if not found:
            raise NotFound(f"the event {letter.partition_id}/{letter.offset} is no longer there: purge its dead letter")
        (event,) = found
        return replace(
            letter,
            key=event.key,
            event_id=event.given_id,
            event_time=event.event_time,
            headers=event.headers,
            raw=event.raw,
        )


def _matching(name: str) -> str:
    return _sql[name].replace("{matching}", _MATCHING)


def _gone(letter: DeadLetter) -> str:
    if letter.stage == "ingest" and not letter.group:
        return "it was never an event: correct it, push it again and purge this"
    return f"group {letter.group!r} is gone: nobody would read it"


def _piece(queue: Queue, letter: DeadLetter, group_id: int) -> Piece:
    partition = queue.place_event(letter.key, None)
    times = None if letter.event_time is None else [micros_of(letter.event_time, 0)]
    return Piece(
        queue,
        partition,
        [0],
        chunk.Columns(
            letter.raw,
            1,
            queue.kept_keys(partition, [letter.key]),
            None if letter.event_id is None else [letter.event_id],
            times,
            [{**letter.headers, HEADER: str(letter.id)}],
        ),
        group_id,
    )


def _letter(row: Sequence[Any]) -> DeadLetter:
    values = list(row)
    values[10] = json.decode(values[10]) if values[10] else {}
    values[11] = values[11].encode()
    return DeadLetter(*values)


def _clean(text: str) -> str:
    # PostgreSQL's text holds neither U+0000 nor half a surrogate pair, and errors quote what they met.
    return text.replace("\x00", "\\u0000").encode("utf-8", "backslashreplace").decode()
