"""Pushed events are stored unchanged, or refused with their position and field."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.errors import (
    InvalidEvent,
    InvalidRequest,
)
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from tests.log.logs import QUEUE, data, drain, opened, pop, push

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def log(clean_log: Log) -> Log:
    return clean_log


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


# Stored unchanged

FAITHFUL: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "an integer": 3,
    "a negative zero": -0.0,
    "text": "x",
    "empty text": "",
    "an empty list": [],
    "an empty object": {},
    "nested": {"a": [{"b": [None, True, {"c": "d"}]}, [[[]]]]},
    "U+0000": {"\u0000 key": "a\u0000b"},
    "control characters": "".join(map(chr, range(32))) + "\x7f\x85\u2028\u2029",
    "text that looks like escapes": '\\u0000 \\n \\" \\\\',
    "line ends": "a\nb\r\nc\rd",
    "beyond the first plane": "\U0001f600\U0010ffff",
    "64 bits": [2**63 - 1, -(2**63), 2**64 - 1],
    "beyond 64 bits": [2**64, -(2**70), 10**300],
    "floats": [0.1, 1e308, 5e-324, 1 / 3, -1.5e-10],
    "beyond a double": [Decimal("1e400"), Decimal("-1e-400")],
    "200 levels": nested(200),
    "what the encoder has names for": ["NaN", "Infinity", "null", {"NaN": "-Infinity"}],
    "words of SQL": "'; DROP TABLE penstock.queues; --",
    "an object with odd names": {"": 1, " ": 2, "data": 3, "key": None, "id": 5},
}


@pytest.mark.parametrize("what", FAITHFUL)
async def test_json_values_are_stored_unchanged(log: Log, what: str) -> None:
    value = FAITHFUL[what]
    text = json.dumps(value, default=str).encode() if what != "beyond a double" else b"[1e400, -1e-400]"
    await push(log, [value, value])
    await push(log, [value])
    await log.push([Batch(QUEUE, text), Batch(QUEUE, [{"data": value}])])
    events = await pop(log)
    assert data(events) == [value] * 5
    assert [type(event.data) for event in events] == [type(value)] * 5
    assert events[3].raw == text


json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"])),
    ),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)),
)


@pytest.mark.slow
async def test_generated_json_values_are_stored_unchanged(log: Log) -> None:
    found: list[list[Any]] = []

    @settings(max_examples=200, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(json_values, min_size=1, max_size=3))
    def collect(values: list[Any]) -> None:
        found.append(values)

    collect()
    for values in found:
        await push(log, values)
    stored = data(await drain(log))
    assert stored == [value for values in found for value in values]
    # Compare types, too: an integer must come back as an integer.
    assert repr(stored) == repr([value for values in found for value in values])


async def test_a_number_beyond_a_double_does_not_change_its_neighbours(log: Log) -> None:
    await log.push([Batch(QUEUE, b'{"far": 1e400, "near": 0.1}')])
    (event,) = await pop(log)
    assert event.data == {"far": Decimal("1e400"), "near": 0.1}


KEYS_AND_IDS = [
    "a",
    " spaces around ",
    "line\nend",
    "tab\t",
    "\x7f\x85\u2028",
    "\U0001f600",
    "e\u0301",
    "\u00e9",
    "'; DROP TABLE penstock.queues; --",
    '"quoted" \\backslashed\\ %s %(key)s {chunks} $1',
    "default",
    "0",
    "None",
    "null",
    "NULL",
    "{a,b}",
    "x" * 256,
    "\u20ac" * 85,
]


async def test_any_text_can_be_a_key_or_an_id(log: Log) -> None:
    for queue in (QUEUE, "hashed"):
        await log.push([Batch(queue, [{"data": text, "key": text, "id": text} for text in KEYS_AND_IDS])])
        for event in await drain(log, queue):
            assert (event.key, event.given_id) == (event.data, event.data)
        for text in KEYS_AND_IDS:
            found = await log.find(queue, text)
            assert found is not None
            assert found.data == text
    for text in KEYS_AND_IDS:
        (event,) = await log.fetch(QUEUE, text)
        assert event.data == text


async def test_keys_that_look_alike_are_not_the_same(log: Log) -> None:
    alike = ["e\u0301", "\u00e9", "a", "A", " a", "a "]
    for key in alike:
        await push(log, [key], key=key)
    assert {event.key: event.offset for event in await drain(log)} == dict.fromkeys(alike, 0)


TIMES: list[tuple[Any, datetime]] = [
    ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ("2026-01-31T12:00:00.123456+05:30", datetime(2026, 1, 31, 6, 30, 0, 123456, tzinfo=UTC)),
    ("20260131T120000Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    (datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    (datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-11))), datetime(2026, 1, 1, 11, tzinfo=UTC)),
    (datetime.min.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)),
    (datetime.max.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
]


async def test_times_keep_their_microseconds(log: Log) -> None:
    await log.push([Batch(QUEUE, [{"data": i, "time": given} for i, (given, _) in enumerate(TIMES)])])
    events = await pop(log)
    assert [event.time for event in events] == [expected for _, expected in TIMES]
    await log.ack(events, "dead_letter")
    assert await log.count_dead_letters(DeadLetterFilter(queue=QUEUE)) == len(TIMES)


async def test_headers_are_stored_unchanged(log: Log) -> None:
    headers = [{}, {"": ""}, {"a\u0000\n": "\U0001f600"}, None, {f"h{i}": "v" * 100 for i in range(100)}]
    await log.push([Batch(QUEUE, [{"data": i, "headers": some} for i, some in enumerate(headers)])])
    assert [event.headers for event in await pop(log)] == [some or {} for some in headers]


async def test_an_event_may_be_as_large_as_the_limit(log: Log, shared_url: str) -> None:
    await push(log, ["x" * (1024 * 1024 - 2)])
    with pytest.raises(InvalidEvent, match="limit") as refusal:
        await push(log, ["small", "x" * (1024 * 1024 - 1)])
    assert (refusal.value.index, refusal.value.field) == (1, "data")
    await log.configure(QUEUE, {"max_event_bytes": 3_000_000})
    await push(log, ["x" * 2_999_998])
    await log.configure(QUEUE, {"max_event_bytes": 10})
    large = [{"data": "123456789"}]
    requests: list[tuple[Any, int]] = [
        (large, 0),
        ([{"data": 1}, *large], 1),
        (b'"123456789"', 0),
        (b'1\n"123456789"', 1),
    ]
    for events, index in requests:
        with pytest.raises(InvalidEvent) as refusal:
            await log.push([Batch(QUEUE, events)])
        assert refusal.value.index == index
    assert [len(event.raw) for event in await drain(log)] == [1024 * 1024, 3_000_000]
    async with opened(shared_url, max_event_bytes=20) as small:
        await push(small, ["x" * 18], queue="hashed")
        with pytest.raises(InvalidEvent):
            await push(small, ["x" * 19], queue="hashed")


# Refused


@dataclass
class Plain:
    number: float


BAD_FIELDS: dict[str, tuple[dict[Any, Any], str]] = {
    "NaN": ({"data": math.nan}, "data"),
    "Infinity": ({"data": -math.inf}, "data"),
    "nested NaN": ({"data": {"a": [None, {"b": (1.0, math.nan)}]}}, "data"),
    "NaN as a name": ({"data": {math.nan: 1}}, "data"),
    "Decimal NaN": ({"data": [Decimal("NaN")]}, "data"),
    "Decimal signalling NaN": ({"data": [Decimal("sNaN")]}, "data"),
    "Decimal Infinity": ({"data": {"a": Decimal("-Infinity")}}, "data"),
    "NaN in an object of the program": ({"data": Plain(math.nan)}, "data"),
    "a surrogate": ({"data": "\ud800"}, "data"),
    "a surrogate in a name": ({"data": {"\udfff": 1}}, "data"),
    "10,000 levels": ({"data": nested(10_000)}, "data"),
    "300 levels": ({"data": nested(300)}, "data"),
    "an object of the program": ({"data": object()}, "data"),
    "bytes": ({"data": b"\xff\x00"}, "data"),
    "a set": ({"data": {1, 2}}, "data"),
    "a range": ({"data": range(3)}, "data"),
    "a complex number": ({"data": [1j]}, "data"),
    "no data": ({"key": "a"}, "data"),
    "no fields": ({}, "data"),
    "another field": ({"data": 1, "payload": 2}, "'payload'"),
    "a field that is no text": ({"data": 1, 7: 2}, "7"),
    "a number as key": ({"data": 1, "key": 7}, "key"),
    "a list as key": ({"data": 1, "key": ["a"]}, "key"),
    "true as key": ({"data": 1, "key": True}, "key"),
    "an empty key": ({"data": 1, "key": ""}, "key"),
    "U+0000 in a key": ({"data": 1, "key": "a\x00"}, "key"),
    "a surrogate in a key": ({"data": 1, "key": "a\ud800"}, "key"),
    "a key too long": ({"data": 1, "key": "x" * 1025}, "key"),
    "a key too long in bytes": ({"data": 1, "key": "\u20ac" * 342}, "key"),
    "a number as id": ({"data": 1, "id": 7}, "id"),
    "an empty id": ({"data": 1, "id": ""}, "id"),
    "U+0000 in an id": ({"data": 1, "id": "\x00"}, "id"),
    "a surrogate in an id": ({"data": 1, "id": "\udc00"}, "id"),
    "an id too long": ({"data": 1, "id": "x" * 257}, "id"),
    "an id too long in bytes": ({"data": 1, "id": "\u20ac" * 86}, "id"),
    "a time without zone": ({"data": 1, "time": datetime(2026, 1, 1)}, "time"),
    "a time without zone as text": ({"data": 1, "time": "2026-01-31T12:00:00"}, "time"),
    "a time that is none": ({"data": 1, "time": "yesterday"}, "time"),
    "a number as time": ({"data": 1, "time": 1_700_000_000}, "time"),
    "a time after the last year": ({"data": 1, "time": "9999-12-31T23:59:59-12:00"}, "time"),
    "a time before the first year": ({"data": 1, "time": "0001-01-01T00:00:00+12:00"}, "time"),
    "a list as headers": ({"data": 1, "headers": [("a", "b")]}, "headers"),
    "a number in the headers": ({"data": 1, "headers": {"a": 1}}, "headers"),
    "a number as header": ({"data": 1, "headers": {1: "a"}}, "headers"),
    "a surrogate in the headers": ({"data": 1, "headers": {"a": "\ud800"}}, "headers"),
    "headers too large": ({"data": 1, "headers": {"a": "x" * 70_000}}, "headers"),
}


@pytest.mark.parametrize("queue", [QUEUE, "hashed"])
@pytest.mark.parametrize("what", BAD_FIELDS)
async def test_a_bad_event_is_refused_by_index_and_field(log: Log, what: str, queue: str) -> None:
    event, field = BAD_FIELDS[what]
    good: dict[str, Any] = {"data": 0, "key": "good"}
    alike: dict[str, Any] = {name: None for name in event if name in ("key", "id", "headers")}
    requests: list[Sequence[Any]] = [
        [event],
        [good, event],
        [good] * 2500 + [event, good],
        [good | alike, event, {"data": 1}],
    ]
    for events in requests:
        with pytest.raises(InvalidEvent) as refusal:
            await log.push([Batch(queue, events)])
        assert (refusal.value.index, refusal.value.field) == (events.index(event), field)
        assert f"event {events.index(event)}: {field}" in str(refusal.value)
    assert (await log.describe(queue)).size.appended == 0


@pytest.mark.parametrize("item", [None, 1, "text", ["data"], b"{}", ("data", 1)], ids=repr)
async def test_an_event_that_is_not_a_mapping_is_refused(log: Log, item: Any) -> None:
    for events in ([item], [{"data": 1}, item]):
        with pytest.raises(InvalidEvent) as refusal:
            await log.push([Batch(QUEUE, events)])
        assert refusal.value.index == len(events) - 1
    assert (await log.describe(QUEUE)).size.appended == 0


@pytest.mark.parametrize("events", [None, 7, "text", {"data": 1}, iter([{"data": 1}]), {1, 2}])
async def test_events_that_are_not_a_list_are_refused(log: Log, events: Any) -> None:
    with pytest.raises(InvalidRequest, match="list"):
        await log.push([Batch(QUEUE, events)])


# NDJSON


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"1\n2\n3", [1, 2, 3]),
        (b"1\n2\n3\n", [1, 2, 3]),
        (b"1\r\n2\r\n3\r\n", [1, 2, 3]),
        (b"\n\n1\n\n\n2\n \n\t\n3\n\n", [1, 2, 3]),
        (b"1\n  \n2", [1, 2]),
        (b"1\n\t\r\n2", [1, 2]),
        (b'  {"a" :\t1 }  \n[ ]', [{"a": 1}, []]),
        (b'{"a":\r1}', [{"a": 1}]),
        (b'{"a": 1, "a": 2}', [{"a": 2}]),
        ('"€"\n"\\ud83d\\ude00"'.encode(), ["€", "\U0001f600"]),
        (b"1e400", [Decimal("1e400")]),
        (b"1E5\n-0\n0.10", [1e5, 0, 0.1]),
        (b"123456789012345678901234567890", [123456789012345678901234567890]),
    ],
    ids=repr,
)
async def test_each_line_of_ndjson_is_one_event(log: Log, text: bytes, expected: list[Any]) -> None:
    for given_text in (text, bytearray(text), memoryview(text)):
        (result,) = await log.push([Batch(QUEUE, given_text)])  # type: ignore[arg-type]  # as a caller may
        assert len(result) == len(expected)
        assert data(await drain(log)) == expected


@pytest.mark.parametrize(
    ("text", "index"),
    [
        (b"{", 0),
        (b"1\n2\nx\n4", 2),
        (b'{"a": 1}\n{"a": 1,}', 1),
        (b"1 2", 0),
        (b"1\r2", 0),
        (b"1\n2 3\n4", 1),
        (b"[1,\n2]", 0),
        (b'1\n{"a":\n1}', 1),
        (b"nul\nl", 0),
        (b"NaN", 0),
        (b"1\n[Infinity]", 1),
        (b"'a'", 0),
        (b"01", 0),
        (b"1.", 0),
        (b"+1", 0),
        (b'"a\tb"', 0),
        (b'"a\x00b"', 0),
        (b'"\\x41"', 0),
        (b'"\\ud800"', 0),
        (b'1\n{"\\udc00": 1}', 1),
        (b'1\n"\xff"', 1),
        (b'"\xed\xa0\x80"', 0),
        (b"\xef\xbb\xbf1", 0),
        (b"[" * 10_000 + b"]" * 10_000, 0),
        (b"1\n" + b"[" * 300 + b"]" * 300, 1),
        (b"1\n" + b"[ " * 300 + b"] " * 300, 1),
        (b'{"a": ' * 300 + b"1" + b"}" * 300, 0),
        (b"1\n\n2\n \nx", 2),
        (b'1\n"' + b"x" * (1024 * 1024) + b'"\n3', 1),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_a_bad_line_is_refused_by_its_index(log: Log, text: bytes, index: int) -> None:
    with pytest.raises(InvalidEvent) as refusal:
        await log.push([Batch(QUEUE, text)])
    assert (refusal.value.index, refusal.value.field) == (index, "data")
    assert (await log.describe(QUEUE)).size.appended == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"n": NaN}', "NaN is not JSON (byte 6); send null or leave the field out"),
        (b"[1, -Infinity]", "Infinity is not JSON (byte 5); send null or leave the field out"),
        (b'{"n": None}', "None is not JSON (byte 6); write null"),
        (b'{"n": "\\ud800"}', "contains a lone surrogate, which UTF-8 cannot encode (byte 7)"),
        (b'["\\\\ud83d \\ud83d\\ude00 \\ude00"]', "contains a lone surrogate, which UTF-8 cannot encode (byte 23)"),
        (b'"\\ud800 and more of it"', "contains a lone surrogate, which UTF-8 cannot encode (byte 1)"),
        (b"\xef\xbb\xbf1", "starts with a byte order mark, which JSON does not have; remove it"),
        (b'{"n": 1', "ends in the middle of a value"),
        (b'"\xff"', "is not valid UTF-8"),
    ],
)
async def test_a_bad_line_is_refused_with_a_precise_reason(log: Log, text: bytes, reason: str) -> None:
    with pytest.raises(InvalidEvent) as refusal:
        await log.push([Batch(QUEUE, text)])
    assert refusal.value.reason == reason


async def test_fields_of_ndjson_can_be_named(log: Log) -> None:
    text = b'{"k": "ada", "i": "1", "t": "2026-01-31T12:00:00Z"}\n{"k": 7, "x": 1e400}\n{"k": null}\n{}'
    await log.push([Batch("hashed", text, key_field="k", id_field="i", time_field="t", key="fallback")])
    events = await drain(log, "hashed")
    assert {(event.key, event.given_id) for event in events} == {("ada", "1"), ("7", None), ("fallback", None)}
    assert [event.event_time for event in events if event.key == "ada"] == [datetime(2026, 1, 31, 12, tzinfo=UTC)]


async def test_one_field_can_be_named_twice(log: Log) -> None:
    await log.push([Batch(QUEUE, b'{"id": "a"}\n{"id": "b"}', key_field="id", id_field="id")])
    assert {(event.key, event.given_id) for event in await drain(log)} == {("a", "a"), ("b", "b")}


@pytest.mark.parametrize("name", ['"', "\\", "a b", "\u20ac", "\x01", "'; --", "field0"])
async def test_a_named_field_may_have_any_name(log: Log, name: str) -> None:
    await log.push([Batch(QUEUE, json.dumps({name: "ada"}).encode(), key_field=name)])
    (event,) = await drain(log)
    assert event.key == "ada"


@pytest.mark.parametrize(
    ("line", "named", "field"),
    [
        (b'{"f": 1.5}', "key_field", "key"),
        (b'{"f": true}', "key_field", "key"),
        (b'{"f": ["a"]}', "key_field", "key"),
        (b'{"f": ""}', "key_field", "key"),
        (b'{"f": 1e400}', "key_field", "key"),
        (b'{"f": "\\u0000"}', "key_field", "key"),
        (b'{"f": 7}', "id_field", "id"),
        (b'{"f": "' + b"x" * 257 + b'"}', "id_field", "id"),
        (b'{"f": 1700000000}', "time_field", "time"),
        (b'{"f": "2026-01-31T12:00:00"}', "time_field", "time"),
        (b'[{"f": "a"}]', "key_field", "data"),
        (b'  "text"', "id_field", "data"),
        (b"null", "time_field", "data"),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_a_bad_named_field_is_refused_by_index_and_field(log: Log, line: bytes, named: str, field: str) -> None:
    with pytest.raises(InvalidEvent) as refusal:
        await log.push([Batch(QUEUE, b"{}\n" + line + b"\n{}", **{named: "f"})])
    assert (refusal.value.index, refusal.value.field) == (1, field)
    assert (await log.describe(QUEUE)).size.appended == 0


@pytest.mark.parametrize("named", ["key_field", "id_field", "time_field"])
@pytest.mark.parametrize("name", [7, b"f", ["f"]], ids=repr)
async def test_a_field_name_must_be_text(log: Log, named: str, name: Any) -> None:
    with pytest.raises(InvalidRequest):
        await log.push([Batch(QUEUE, b'{"f": "a"}', **{named: name})])
