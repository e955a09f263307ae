"""From what a caller pushes to checked, encoded pieces, one per partition.

Everything that can be wrong with an event is found here, before the database hears of it, so that a request is
stored whole or not at all.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from operator import itemgetter
from typing import Any, cast

import msgspec

from penstock.core import json
from penstock.core.errors import InvalidEvent, InvalidRequest, shown
from penstock.core.names import key_problem
from penstock.core.timestamps import FIRST, LAST, to_micros
from penstock.log.queue import DEFAULT_KEY, Queue
from penstock.log.storage import chunk

MAX_ID_BYTES = 256
#: Events in one piece: small enough to read one back cheaply, large enough to compress well.
PIECE_EVENTS = 2000

_FIELDS = ("data", "key", "id", "time", "headers")
_FIELD_SET = frozenset(_FIELDS)
_SIMPLE_FIELDS = frozenset(("data", "key", "id"))
_TEXT_OR_NONE = frozenset((str, type(None)))


class Piece(msgspec.Struct, gc=False):
    """Events of one request for one partition, encoded.

    A push to many lanes makes one for each, so they are made quickly and Python does not look for cycles in them.
    """

    queue: Queue
    partition: str
    #: The events' places in the request.
    indices: Sequence[int]
    columns: chunk.Columns
    #: Delivered to this group alone (a redriven dead letter).
    target_group: int | None = None

    def keys(self) -> Sequence[str | None]:
        """The key of each event."""
        if self.queue.partition_count is None and self.partition != DEFAULT_KEY:
            return [self.partition] * self.columns.count
        return self.columns.keys or [None] * self.columns.count

    def id_hashes(self) -> list[bytes | None]:
        """What stands for each event's key and id in the deduplication table; None for an event without an id.

        No partition is in it, so that an id is known again when the queue has been partitioned differently.
        """
        if self.columns.ids is None:
            return [None] * self.columns.count
        return [
            None if event_id is None else blake2b(f"{key or ''}\0{event_id}".encode(), digest_size=16).digest()
            for key, event_id in zip(self.keys(), self.columns.ids, strict=True)
        ]

    def events(self) -> list[tuple[Any, ...]]:
        """Each event as it was pushed: its place in the request, key, id, time, headers and data."""
        columns, nothing = self.columns, [None] * self.columns.count
        return list(
            zip(
                self.indices,
                self.keys(),
                columns.ids or nothing,
                columns.times or nothing,
                columns.headers or nothing,
                columns.lines(),
                strict=True,
            )
        )

    def without(self, dropped: set[int]) -> Piece:
        """The piece less the events at these places (of the piece, not of the request)."""
        keep = [i for i in range(self.columns.count) if i not in dropped]
        columns = self.columns
        lines = columns.lines()

        def kept(column: Sequence[Any] | None) -> list[Any] | None:
            return None if column is None else [column[i] for i in keep]

        return Piece(
            self.queue,
            self.partition,
            [self.indices[i] for i in keep],
            chunk.Columns(
                b"\n".join([lines[i] for i in keep]),
                len(keep),
                kept(columns.keys),
                kept(columns.ids),
                kept(columns.times),
                kept(columns.headers),
            ),
            self.target_group,
        )


class Placer:
    """Remembers which partition each key of a queue belongs to; a key that it knows is a checked one."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._known: dict[str, str] = {}

    def place(self, key: str | None, index: int) -> str:
        """The partition of a key; ``index`` is for the error if it cannot be one."""
        if key is None:
            return self.somewhere()
        known = self._known.get(key) if type(key) is str else None
        if known is not None:
            return known
        problem = key_problem(key)
        if problem is not None:
            raise InvalidEvent(problem, index=index, field="key")
        if len(self._known) >= 200_000:
            self._known.clear()
        plain = str.__str__(key)
        partition = self._known[plain] = self.queue.place(plain)
        return partition

    def place_all(self, keys: Sequence[str | None]) -> list[str]:
        """The partition of each key."""
        known = self._known
        try:
            return list(map(known.__getitem__, keys))  # type: ignore[arg-type]  # None goes the slow way
        except (KeyError, TypeError):
            anywhere = self.somewhere()
            return [anywhere if key is None else self.place(key, i) for i, key in enumerate(keys)]

    def place_by_id(self, partitions: list[str], keys: Sequence[str | None] | None, ids: Sequence[str | None]) -> None:
        """Where ids are to be recognised again, an event without a key goes where its id says."""
        if self.queue.partition_count is None or self.queue.dedup_window_seconds <= 0:
            return
        for i, event_id in enumerate(ids):
            if event_id is not None and (keys is None or keys[i] is None):
                partitions[i] = self.queue.place(event_id)

    def somewhere(self) -> str:
        """The partition of events without a key."""
        count = self.queue.partition_count
        return DEFAULT_KEY if count is None else str(random.randrange(count))  # noqa: S311 - spreads load


def prepare(placer: Placer, items: Sequence[Any], *, key: str | None = None, max_bytes: int) -> list[Piece]:
    """Check and encode events: mappings with ``data`` and optionally key, id, time and headers."""
    if len(items) == 1:
        piece = _simple(placer, items[0], key, max_bytes)
        if piece is not None:
            return [piece]
    datas, keys, ids, times, headers = _columns(items)
    if ids is not None:
        ids = check_ids(ids)
    if keys is not None and key is not None:
        keys = [key if k is None else k for k in keys]
    places = places_of(placer, key, keys, ids, len(datas))
    micros = None if times is None else [micros_of(t, i) for i, t in enumerate(times)]
    if headers is not None:
        headers = [check_headers(header, i) for i, header in enumerate(headers)]
    if keys is None and key is not None:
        keys = [key] * len(datas)
    picks = [picker(indices, len(datas)) for indices in places.values()]
    texts = _encode(datas, [pick(datas) for pick in picks])
    pieces: list[Piece] = []
    for (name, indices), pick, text in zip(places.items(), picks, texts, strict=True):
        columns = [None if column is None else pick(column) for column in (ids, micros, headers)]
        kept = placer.queue.kept_keys(name, None if keys is None else pick(keys))
        add_pieces(pieces, placer.queue, name, indices, text, [kept, *columns], max_bytes)
    return pieces


def _columns(
    items: Sequence[Any],
) -> tuple[list[Any], list[Any] | None, list[Any] | None, list[Any] | None, list[Any] | None]:
    alike = _alike(items)
    if alike is not None:
        return alike
    try:
        datas = [item["data"] for item in items]
        keys, ids, times, headers = ([item.get(name) for item in items] for name in _FIELDS[1:])
    except (KeyError, TypeError, AttributeError):
        for i, item in enumerate(items):
            check_shape(item, i)
        raise InvalidRequest("events must be mappings with 'data'") from None
    found = len(items)
    columns: list[list[Any] | None] = []
    for column in (keys, ids, times, headers):
        filled = len(column) - column.count(None)
        found += filled
        columns.append(column if filled else None)
    if sum(map(len, items)) != found:
        for i, item in enumerate(items):
            check_shape(item, i)
    return datas, columns[0], columns[1], columns[2], columns[3]


def _simple(placer: Placer, item: Any, key: str | None, max_bytes: int) -> Piece | None:
    """The piece of one event with nothing special about it; None if there is, and the long way is due."""
    if type(item) is not dict or "data" not in item or not item.keys() <= _SIMPLE_FIELDS:
        return None
    event_id = item.get("id")
    if event_id is not None and not (
        type(event_id) is str and event_id.isascii() and 0 < len(event_id) <= MAX_ID_BYTES and "\x00" not in event_id
    ):
        return None
    try:
        text = json.encode(item["data"])
    except json.JSONProblem:
        return None
    if len(text) > max_bytes:
        return None
    own_key = item.get("key")
    if own_key is None:
        own_key = key
    elif type(own_key) is not str:
        return None
    if own_key is None and event_id is not None and placer.queue.dedup_window_seconds > 0:
        return None
    partition = placer.place(own_key, 0)
    keys = None if own_key is None else placer.queue.kept_keys(partition, (own_key,))
    return Piece(placer.queue, partition, (0,), chunk.Columns(text, 1, keys, None if event_id is None else (event_id,)))


def _alike(items: Sequence[Any]) -> tuple[Any, ...] | None:
    """The columns of events that all have the fields of the first: the common case, at the speed of C."""
    first = items[0]
    if type(first) is not dict or "data" not in first or not first.keys() <= _FIELD_SET:
        return None
    try:
        if sum(map(len, items)) != len(first) * len(items):
            return None
        columns = {name: list(map(itemgetter(name), items)) for name in first}
    except (KeyError, TypeError, IndexError):
        return None
    found = [columns.get(name) for name in _FIELDS]
    if any(column is not None and None in column for column in found[1:]):
        return None
    return tuple(found)


def check_shape(item: Any, index: int) -> None:
    """Refuse what is no event; ``index`` is for the error."""
    if not isinstance(item, Mapping):
        raise InvalidEvent(
            f"must be a mapping such as {{'data': ...}}, not {type(item).__name__}",
            index=index,
            field="event",
        )
    for name in item:
        if name not in _FIELDS:
            raise InvalidEvent(
                f"is not a field of an event ({', '.join(_FIELDS)}); put the event's content under 'data'",
                index=index,
                field=shown(name),
            )
    if "data" not in item:
        raise InvalidEvent("is missing; it holds the event's content, any JSON value", index=index, field="data")


def _one_place(partition: str, count: int) -> dict[str, Sequence[int]]:
    return {partition: range(count)}


def places_of(
    placer: Placer, key: str | None, keys: Sequence[Any] | None, ids: Sequence[Any] | None, count: int
) -> dict[str, Sequence[int]]:
    """Which events of the request go to which partition."""
    if keys is None and (key is not None or ids is None):
        return _one_place(placer.place(key, 0), count)
    partitions = [placer.place(None, 0)] * count if keys is None else placer.place_all(keys)
    if ids is not None and key is None:
        placer.place_by_id(partitions, keys, ids)
    return _places(partitions)


def _places(partitions: Sequence[str]) -> dict[str, Sequence[int]]:
    """The places in the request of each partition's events."""
    if len(set(partitions)) == 1:
        return _one_place(partitions[0], len(partitions))
    places: defaultdict[str, list[int]] = defaultdict(list)
    for i, name in enumerate(partitions):
        places[name].append(i)
    return cast("dict[str, Sequence[int]]", places)


def picker(indices: Sequence[int], count: int) -> Callable[[list[Any]], list[Any]]:
    """What picks the values at these places of a column of so many."""
    if len(indices) == count:
        return _all
    if len(indices) == 1:
        place = indices[0]
        return lambda column: [column[place]]
    pick = itemgetter(*indices)
    return lambda column: list(pick(column))


def _all(column: list[Any]) -> list[Any]:
    return column


def add_pieces(
    pieces: list[Piece],
    queue: Queue,
    partition: str,
    indices: Sequence[int],
    text: bytes,
    columns: Sequence[Sequence[Any] | None],
    max_bytes: int,
) -> None:
    """The events of one partition in pieces of a good size."""
    if len(indices) <= PIECE_EVENTS and len(text) <= chunk.TARGET_BYTES and len(text) <= max_bytes:
        pieces.append(Piece(queue, partition, indices, chunk.Columns(text, len(indices), *columns)))
        return
    lines = text.split(b"\n")
    for index, line in zip(indices, lines, strict=True):
        _check_size(line, index, max_bytes)
    for a, b in _cuts([len(line) for line in lines]):
        some = [None if column is None else column[a:b] for column in columns]
        own = chunk.Columns(b"\n".join(lines[a:b]), b - a, *some)
        pieces.append(Piece(queue, partition, indices[a:b], own))


def _encode(datas: list[Any], parts: Sequence[list[Any]]) -> list[bytes]:
    try:
        return json.encode_lines(parts)
    except json.JSONProblem:
        for i, data in enumerate(datas):
            try:
                json.encode(data)
            except json.JSONProblem as problem:
                raise InvalidEvent(str(problem), index=i, field="data") from None
        raise


def _cuts(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Cut where a piece would hold too many events or bytes; an event is never cut."""
    cuts: list[tuple[int, int]] = []
    start = size = 0
    for i, more in enumerate(sizes):
        if i > start and (size + more > chunk.TARGET_BYTES or i - start >= PIECE_EVENTS):
            cuts.append((start, i))
            start, size = i, 0
        size += more + 1
    cuts.append((start, len(sizes)))
    return cuts


def _check_size(line: bytes, index: int, max_bytes: int) -> None:
    if len(line) > max_bytes:
        raise InvalidEvent(
            f"is {len(line)} bytes of JSON and the limit is {max_bytes}; store it elsewhere and push a reference, "
            "or raise max_event_bytes of the queue",
            index=index,
            field="data",
        )


def _plain(texts: list[Any]) -> list[Any]:
    """The same texts, those of a type derived from str as plain ones, which is what a chunk can hold."""
    if _TEXT_OR_NONE.issuperset(map(type, texts)):
        return texts
    return [None if text is None else str.__str__(text) for text in texts]


def check_ids(ids: list[Any]) -> list[Any]:
    """The ids as plain text, or raise InvalidEvent for the first that cannot be one."""
    try:
        joined = "".join(ids)
        sizes = set(map(len, ids))
        if joined.isascii() and "\x00" not in joined and 0 < min(sizes) <= max(sizes) <= MAX_ID_BYTES:
            return _plain(ids)
    except TypeError:
        pass
    for i, event_id in enumerate(ids):
        if event_id is None:
            continue
        problem = key_problem(event_id)
        if problem is None and len(event_id.encode()) > MAX_ID_BYTES:
            problem = f"may have {MAX_ID_BYTES} bytes"
        if problem is not None:
            raise InvalidEvent(problem, index=i, field="id")
    return _plain(ids)


def micros_of(time: Any, index: int) -> int | None:
    """A time in microseconds since 1970, exactly; ``index`` is for the error if it cannot be one."""
    if time is None:
        return None
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            raise InvalidEvent(
                f"{shown(time)} is not an ISO 8601 time such as 2026-01-31T12:00:00Z", index=index, field="time"
            ) from None
    if not isinstance(time, datetime):
        raise InvalidEvent(f"must be a datetime or ISO 8601 text, not {type(time).__name__}", index=index, field="time")
    if time.utcoffset() is None:
        raise InvalidEvent(
            "has no time zone; add one (datetime.now(UTC), or a Z at the end)", index=index, field="time"
        )
    micros = to_micros(time)
    # Its own time zone may have years that UTC has not.
    if not FIRST <= micros <= LAST:
        raise InvalidEvent(f"{time} is not in the years 1 to 9999 of UTC", index=index, field="time")
    return micros


def check_headers(headers: Any, index: int) -> dict[str, str] | None:
    """The headers as plain texts, or raise InvalidEvent; ``index`` is for the error."""
    if headers is None:
        return None
    if not isinstance(headers, dict):
        raise InvalidEvent(
            f"must be a mapping of text to text, not {type(headers).__name__}", index=index, field="headers"
        )
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidEvent(f"{shown(name)}: names and values are text", index=index, field="headers")
        try:
            (name + value).encode()
        except UnicodeEncodeError:
            raise InvalidEvent(f"{shown(name)} holds a lone surrogate", index=index, field="headers") from None
    if sum(len(name) + len(value) for name, value in headers.items()) > 65_536:
        raise InvalidEvent("take more than 64 KiB", index=index, field="headers")
    # Plain texts, and a dict that nobody else has: it is stored after this.
    return {str.__str__(name): str.__str__(value) for name, value in headers.items()}
