"""The options of ``format("penstock")``: each is checked and, if it is wrong, refused by its name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from penstock.connector.ddl import check_fields
from penstock.core.errors import InvalidOption, PenstockError, shown
from penstock.core.names import check_name
from penstock.log.groups import check_place

#: An end of the log, or offsets by the partition's number.
Edge: TypeAlias = Literal["earliest", "latest"] | dict[int, int]

#: What goes with every event, in the order in which it is shown; those after ``headers`` only when they are asked for.
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

MODES = ("permissive", "dropmalformed", "failfast")


@dataclass(frozen=True)
class Read:
    """What is read of which queues."""

    queues: tuple[str, ...]
    #: None: those that a query's own schema names, or the usual ones.
    columns: tuple[str, ...] | None
    fields: str
    mode: str
    starting: Edge
    ending: Edge
    starting_time: datetime | None
    ending_time: datetime | None
    keys: frozenset[str] | None
    group: str | None
    fail_on_loss: bool
    min_partitions: int
    max_records: int | None


@dataclass(frozen=True)
class Written:
    """What is written to which queue, and under which number."""

    queue: str
    #: The column that holds the key, if it is not ``key``.
    key_column: str | None
    writer: str | None
    version: int | None
    full_seconds: float


@dataclass(frozen=True)
class Table:
    """Which query's result is read."""

    query: str
    #: Closed windows too, and not only open ones.
    history: bool


#: Options that say how to reach the database, whatever is done there.
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
#: All of them.
OPTIONS = dict.fromkeys((*_READ, *_BATCH, *_STREAM, *_WRITE, "txnVersion", *_TABLE))

#: What Spark itself puts among the options, or takes from there.
_SPARKS = frozenset(("checkpointlocation", "queryname", "outputmode"))
#: Options of other streams that people bring along, and what they are here.
_ELSEWHERE = {
    "subscribe": "queue",
    "topic": "queue",
    "maxoffsetspertrigger": "maxRecordsPerTrigger",
    "kafka.group.id": "group",
    "groupidprefix": "group",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "includeheaders": "columns",
    "txnappid": "txnAppId",
}


def is_table(options: Mapping[str, str]) -> bool:
    """Whether the rows of a query are meant, and not the events of a queue."""
    return "query" in options and "queue" not in options


def read_options(options: Mapping[str, str], *, streaming: bool) -> Read:
    """What ``spark.read`` or ``spark.readStream`` was told."""
    doing = "readStream" if streaming else "read"
    return _read(_Given(options, (*_READ, *(_STREAM if streaming else _BATCH)), doing), streaming=streaming)


def schema_options(options: Mapping[str, str]) -> Read:
    """The same where it is not known yet whether it is a stream."""
    return _read(_Given(options, (*_READ, *_BATCH, *_STREAM), "read"), streaming=False)


def _read(given: _Given, *, streaming: bool) -> Read:
    starting_time = given.parsed("startingTimestamp", _moment)
    if starting_time is not None and "startingOffsets" in given:
        raise _bad("startingTimestamp", "says where to begin, and so does startingOffsets: give one of the two")
    ending_time = given.parsed("endingTimestamp", _moment)
    if ending_time is not None and "endingOffsets" in given:
        raise _bad("endingTimestamp", "says where to end, and so does endingOffsets: give one of the two")
    mode = (given.get("mode") or MODES[0]).lower()
    if mode not in MODES:
        raise _bad("mode", f"is permissive, dropMalformed or failFast, not {shown(mode)}{_closest(mode, MODES)}")
    key, fields = given.get("key"), (given.get("fields") or "").strip()
    check_fields(fields)
    return Read(
        given.needed("queue", _queues),
        given.parsed("columns", _columns),
        fields,
        mode,
        given.parsed("startingOffsets", _edge) or ("latest" if streaming else "earliest"),
        given.parsed("endingOffsets", _edge) or "latest",
        starting_time,
        ending_time,
        None if key is None else frozenset([key]),
        given.parsed("group", lambda text: check_name(text, "group")),
        given.parsed("failOnDataLoss", _switch) is not False,
        given.parsed("minPartitions", _count) or 0,
        given.parsed("maxRecordsPerTrigger", _count),
    )


def write_options(options: Mapping[str, str], *, streaming: bool) -> Written:
    """What ``df.write`` or ``df.writeStream`` was told."""
    given = _Given(options, _WRITE if streaming else (*_WRITE, "txnVersion"), "writeStream" if streaming else "write")
    writer = given.parsed("txnAppId", lambda text: check_name(text, "writer"))
    version = None if streaming else given.parsed("txnVersion", _whole)
    if not streaming and (writer is None) != (version is None):
        raise _bad(
            "txnVersion" if version is None else "txnAppId",
            "is missing: a write that may be repeated is known by both, txnAppId and txnVersion",
        )
    seconds = given.parsed("fullQueueTimeoutSeconds", _seconds)
    return Written(
        given.needed("queue", _one_queue),
        given.get("keyColumn"),
        writer,
        version,
        600.0 if seconds is None else seconds,
    )


def table_options(options: Mapping[str, str]) -> Table:
    """What is asked of a query's result."""
    given = _Given(options, _TABLE, "read")
    rows = given.get("rows") or "all"
    if rows not in ("all", "live"):
        raise _bad("rows", f"is 'all' (closed windows and open ones) or 'live' (open ones alone), not {shown(rows)}")
    return Table(given.needed("query", lambda text: check_name(text, "query")), rows == "all")


class _Given:
    """The options that were given, which all have to be known."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...], doing: str) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        names = {name.lower(): name for name in known}
        for name in options:
            if name.lower() not in names and name.lower() not in _SPARKS:
                raise _unknown(name, names, doing)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._options

    def get(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def parsed(self, name: str, parse: Callable[[str], Any]) -> Any:
        """The option as it is meant, or None if it was not given."""
        text = self.get(name)
        if text is None:
            return None
        try:
            return parse(text)
        except InvalidOption:
            raise
        except (PenstockError, ValueError) as problem:
            raise _bad(name, str(problem)) from None

    def needed(self, name: str, parse: Callable[[str], Any]) -> Any:
        if not (self.get(name) or "").strip():
            raise _bad(name, f"is missing: name it with .option({name!r}, ...)")
        return self.parsed(name, parse)


def _bad(name: str, problem: str) -> InvalidOption:
    return InvalidOption(f"option {shown(name)} {problem}", option=name)


def _unknown(name: str, known: Mapping[str, str], doing: str) -> InvalidOption:
    low = name.lower()
    if low in ("url", "databaseurl", "dburl", "database", "password"):
        return _bad(
            name,
            "is not taken: options are seen by whoever sees the query. Set PENSTOCK_DATABASE_URL where Spark's driver "
            "runs, or name another variable with 'databaseUrlEnv', or a file that holds it with 'databaseUrlFile'",
        )
    elsewhere = {other.lower(): other for other in OPTIONS}
    if low in elsewhere and low not in known:
        return _bad(name, f"is not one of {doing}: it has {', '.join(sorted(known.values()))}")
    if low in _ELSEWHERE:
        return _bad(name, f"is not known; here it is {_ELSEWHERE[low]!r}")
    hint = _closest(low, known, known) or f": there are {', '.join(sorted(known.values()))}"
    return _bad(name, f"is not known{hint}")


def _closest(text: str, among: Any, spelt: Mapping[str, str] | None = None) -> str:
    found = difflib.get_close_matches(text, list(among), n=1, cutoff=0.6)
    return f"; did you mean {(spelt or {}).get(found[0], found[0])!r}?" if found else ""


def _queues(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(check_name(name.strip(), "queue") for name in text.split(",")))


def _one_queue(text: str) -> str:
    return check_name(text, "queue")


def _columns(text: str) -> tuple[str, ...]:
    spelt = {name.lower(): name for name in EVENT_COLUMNS}
    chosen = []
    for name in filter(None, (each.strip() for each in text.split(","))):
        if name.lower() not in spelt:
            hint = _closest(name.lower(), spelt, spelt)
            raise ValueError(f"names {shown(name)}, and events have {', '.join(EVENT_COLUMNS)}{hint}")
        chosen.append(spelt[name.lower()])
    return tuple(dict.fromkeys(chosen))


def _edge(text: str) -> Edge:
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
            "is 'earliest', 'latest' or JSON with offsets by the number of the partition, such as {\"17\": 42} "
            f"(-2 for its first one, -1 for its end), not {shown(text)}"
        )
    return offsets


def _moment(text: str) -> datetime:
    try:
        moment = check_place(text)
    except PenstockError:
        moment = 0
    if not isinstance(moment, datetime):
        raise ValueError(f"is a time with its zone, such as 2026-01-31T12:00:00Z, not {shown(text)}")
    return moment


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"is true or false, not {shown(text)}")
    return text.lower() == "true"


def _whole(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 2**63:
        raise ValueError(f"is a whole number from 0 on, not {shown(text)}")
    return number


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number < 2**63:
        raise ValueError(f"is a whole number from 1 on, not {shown(text)}")
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise ValueError(f"is a number of seconds from 0 to 86400, not {shown(text)}")
    return seconds
