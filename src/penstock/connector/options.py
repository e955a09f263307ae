"""Parses the options of ``format("penstock")``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from penstock.core.errors import InvalidOption, PenstockError, short_repr
from penstock.core.names import check_name
from penstock.core.suggestions import closest_names
from penstock.log.start_position import parse_start_position

#: An end of the queue, a time, or offsets by partition id.
OffsetSpec: TypeAlias = Literal["earliest", "latest"] | datetime | dict[int, int]

#: The columns of every event in order. Those after ``headers`` are optional.
EVENT_COLUMNS = {
    "key": "string",
    "value": "string",
    "queue": "string",
    "partition": "bigint",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "map<string,string>",
    "id": "string",
    "eventTime": "timestamp",
}
DEFAULT_COLUMNS = ("key", "value", "queue", "partition", "offset", "timestamp", "headers")

_FIELDS_EXAMPLE = "customer string, amount decimal(12,2)"

MODES = ("permissive", "dropmalformed", "failfast")


@dataclass(frozen=True)
class ReadOptions:
    """The options of ``spark.read`` and ``spark.readStream`` for queues."""

    queues: tuple[str, ...]
    #: None: the event columns in the schema that the user gave, or the default ones.
    columns: tuple[str, ...] | None
    fields: str
    mode: str
    starting: OffsetSpec
    ending: OffsetSpec
    keys: frozenset[str] | None
    group: str | None
    fail_on_loss: bool
    min_partitions: int
    max_records: int | None


@dataclass(frozen=True)
class WriteOptions:
    """The options of ``df.write`` and ``df.writeStream``."""

    queue: str
    #: The column with the key; None: ``key``.
    key_column: str | None
    writer: str | None
    version: int | None
    full_seconds: float


@dataclass(frozen=True)
class ResultOptions:
    """The options of ``spark.read`` for the result of a query."""

    query: str
    #: Whether closed windows are read too.
    history: bool


_DATABASE = ("databaseUrlEnv", "databaseUrlFile")
_READ = (
    "queue",
    "columns",
    "fields",
    "mode",
    "startingOffsets",
    "startingTimestamp",
    "key",
    "failOnDataLoss",
    "minPartitions",
    *_DATABASE,
)
_BATCH = ("endingOffsets", "endingTimestamp")
_STREAM = ("maxRecordsPerTrigger", "group")
_WRITE = ("queue", "keyColumn", "txnAppId", "fullQueueTimeoutSeconds", *_DATABASE)
_TABLE = ("query", "rows", *_DATABASE)
OPTIONS = dict.fromkeys((*_READ, *_BATCH, *_STREAM, *_WRITE, "txnVersion", *_TABLE))

#: Options of Spark itself.
_SPARK_OPTIONS = frozenset(("checkpointlocation", "queryname", "outputmode"))
#: Options of Spark's Kafka source, and their names here.
_KAFKA_OPTIONS = {
    "subscribe": "queue",
    "topic": "queue",
    "maxoffsetspertrigger": "maxRecordsPerTrigger",
    "kafka.group.id": "group",
    "groupidprefix": "group",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "includeheaders": "columns",
}


def reads_result(options: Mapping[str, str]) -> bool:
    """Return whether the rows of a query are read, and not the events of a queue."""
    return "query" in options and "queue" not in options


def parse_read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    method = "readStream" if streaming else "read"
    known = (*_READ, *(_STREAM if streaming else _BATCH))
    return _parse_read(_OptionParser(options, known, method), streaming=streaming)


def parse_schema_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse the options where it is not known whether they are those of a stream."""
    return _parse_read(_OptionParser(options, (*_READ, *_BATCH, *_STREAM), "read"), streaming=False)


def _parse_read(given: _OptionParser, *, streaming: bool) -> ReadOptions:
    mode = (given.get("mode") or MODES[0]).lower()
    if mode not in MODES:
        raise _error("mode", f"is permissive, dropMalformed or failFast, not {short_repr(mode)}{_closest(mode, MODES)}")
    key, fields = given.get("key"), (given.get("fields") or "").strip()
    _check_fields(fields)
    return ReadOptions(
        given.required("queue", _queues),
        given.parsed("columns", _columns),
        fields,
        mode,
        _parse_position(given, "starting") or ("latest" if streaming else "earliest"),
        _parse_position(given, "ending") or "latest",
        None if key is None else frozenset([key]),
        given.parsed("group", lambda text: check_name(text, "group")),
        given.parsed("failOnDataLoss", _boolean) is not False,
        given.parsed("minPartitions", _count) or 0,
        given.parsed("maxRecordsPerTrigger", _count),
    )


def _parse_position(given: _OptionParser, which: str) -> OffsetSpec | None:
    time, offsets = f"{which}Timestamp", f"{which}Offsets"
    if time in given and offsets in given:
        raise _error(time, f"sets the same position as {offsets}: give one of the two")
    position: OffsetSpec | None = given.parsed(time, _timestamp) or given.parsed(offsets, _offset_spec)
    return position


def parse_write_options(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    known = _WRITE if streaming else (*_WRITE, "txnVersion")
    given = _OptionParser(options, known, "writeStream" if streaming else "write")
    writer = given.parsed("txnAppId", lambda text: check_name(text, "writer"))
    version = None if streaming else given.parsed("txnVersion", _version)
    if not streaming and (writer is None) != (version is None):
        raise _error(
            "txnVersion" if version is None else "txnAppId",
            "is missing: a repeated write is recognized by both, txnAppId and txnVersion",
        )
    seconds = given.parsed("fullQueueTimeoutSeconds", _seconds)
    return WriteOptions(
        given.required("queue", lambda text: check_name(text, "queue")),
        given.get("keyColumn"),
        writer,
        version,
        600.0 if seconds is None else seconds,
    )


def parse_result_options(options: Mapping[str, str]) -> ResultOptions:
    given = _OptionParser(options, _TABLE, "read")
    rows = given.get("rows") or "all"
    if rows not in ("all", "live"):
        raise _error("rows", f"is 'all' (closed and open windows) or 'live' (open windows), not {short_repr(rows)}")
    return ResultOptions(given.required("query", lambda text: check_name(text, "query")), rows == "all")


class _OptionParser:
    """Parses options by name. An unknown option raises InvalidOption."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...], method: str) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        names = {name.lower(): name for name in known}
        for name in options:
            if name.lower() not in names and name.lower() not in _SPARK_OPTIONS:
                raise _unknown(name, names, method)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._options

    def get(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def parsed(self, name: str, parse: Callable[[str], Any]) -> Any:
        """Return the parsed option, or None if it was not given."""
        text = self.get(name)
        if text is None:
            return None
        try:
            return parse(text)
        except InvalidOption:
            raise
        except (PenstockError, ValueError) as problem:
            raise _error(name, str(problem)) from None

    def required(self, name: str, parse: Callable[[str], Any]) -> Any:
        if not (self.get(name) or "").strip():
            raise _error(name, f"is missing: set it with .option({name!r}, ...)")
        return self.parsed(name, parse)


def _error(name: str, problem: str) -> InvalidOption:
    return InvalidOption(f"option {short_repr(name)} {problem}", option=name)


def _unknown(name: str, known: Mapping[str, str], method: str) -> InvalidOption:
    low = name.lower()
    if low in ("url", "databaseurl", "dburl", "database", "password"):
        return _error(
            name,
            "is not accepted, because everyone who sees the query sees its options. Set PENSTOCK_DATABASE_URL where "
            "Spark's driver runs, or name another variable with 'databaseUrlEnv', or a file with 'databaseUrlFile'",
        )
    if low in {other.lower() for other in OPTIONS}:
        return _error(name, f"is not one of {method}: it has {', '.join(sorted(known.values()))}")
    if low in _KAFKA_OPTIONS:
        return _error(name, f"is not known; here it is {_KAFKA_OPTIONS[low]!r}")
    hint = _closest(low, known, known) or f": there are {', '.join(sorted(known.values()))}"
    return _error(name, f"is not known{hint}")


def _closest(text: str, among: Iterable[str], spelling: Mapping[str, str] | None = None) -> str:
    closest = closest_names(text, list(among))
    return f"; did you mean {(spelling or {}).get(closest[0], closest[0])!r}?" if closest else ""


def _check_fields(text: str) -> None:
    try:
        from penstock.stream.sql.column_types import find_columns_problem
    except ImportError:
        return  # where the package came as a zip, sqlglot may be missing; Spark reports an error in the schema, too
    problem = find_columns_problem(text) if text else None
    if problem is not None:
        raise _error(
            "fields", f"lists fields and their types, as in {_FIELDS_EXAMPLE!r}, and in {short_repr(text)} {problem}"
        )


def _queues(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(check_name(name.strip(), "queue") for name in text.split(",")))


def _columns(text: str) -> tuple[str, ...]:
    spelling = {name.lower(): name for name in EVENT_COLUMNS}
    columns = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name.lower() not in spelling:
            hint = _closest(name.lower(), spelling, spelling)
            raise ValueError(f"names {short_repr(name)}, and events have {', '.join(EVENT_COLUMNS)}{hint}")
        columns.append(spelling[name.lower()])
    return tuple(dict.fromkeys(columns))


def _offset_spec(text: str) -> OffsetSpec:
    if text.lower() == "earliest":
        return "earliest"
    if text.lower() == "latest":
        return "latest"
    try:
        given = msgspec.json.decode(text, type=dict[str, int])
        offsets = {int(number): offset for number, offset in given.items()}
    except (msgspec.DecodeError, ValueError):
        offsets = None
    if offsets is None or any(offset < -2 for offset in offsets.values()):
        raise ValueError(
            "is 'earliest', 'latest' or JSON with offsets by partition id, such as {\"17\": 42} "
            f"(-2 for the first offset, -1 for the end), not {short_repr(text)}"
        )
    return offsets


def _timestamp(text: str) -> datetime:
    try:
        position = parse_start_position(text)
    except PenstockError:
        position = 0
    if not isinstance(position, datetime):
        raise ValueError(f"is a time with a time zone, such as 2026-01-31T12:00:00Z, not {short_repr(text)}")
    return position


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"is true or false, not {short_repr(text)}")
    return text.lower() == "true"


def _number(parse: Callable[[str], float], lowest: float, highest: float, description: str) -> Callable[[str], float]:
    def parse_in_range(text: str) -> float:
        try:
            number = parse(text)
        except ValueError:
            number = math.nan
        if not lowest <= number <= highest:
            raise ValueError(f"is {description}, not {short_repr(text)}")
        return number

    return parse_in_range


_count = _number(int, 1, 2**63 - 1, "a whole number of at least 1")
_version = _number(int, 0, 2**63 - 1, "a whole number of at least 0")
_seconds = _number(float, 0, 86_400, "a number of seconds from 0 to 86400")
