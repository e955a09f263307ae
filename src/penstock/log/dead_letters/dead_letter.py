"""Dead letters: events that could not be processed, with their origin and their error."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Raw, Struct, field
from msgspec.json import format as json_format

from penstock.core import json
from penstock.core.errors import InvalidRequest, short_repr
from penstock.core.names import check_name, check_text
from penstock.log.queue_options import MAX_ID, check_integer, check_timestamp

#: The header of a redriven event that holds the id of its dead letter.
DEAD_LETTER_HEADER = "penstock-dead-letter"
#: The stage of dead letters whose chunk is damaged, or their own encrypted data. Their data is null, and a redrive
#: reads the chunk again.
DAMAGED_STAGE = "damaged chunk"
#: The stage of dead letters that were rejected by a push. They never were events, and have no group.
INGEST_STAGE = "ingest"


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """An event of a partition that becomes a dead letter, and its error."""

    offset: int
    error: str
    stage: str = "consumer"
    traceback: str | None = None
    attempts: int = 1


class DeadLetter(Struct, frozen=True):
    """An event that could not be processed, with its origin and its error."""

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
    #: The content as JSON text.
    text: Raw = field(name="data")
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
    def raw(self) -> bytes:
        """The content of the event as the JSON text that is stored."""
        return bytes(self.text)

    @property
    def data(self) -> Any:
        """The content of the event."""
        return json.decode(self.raw)

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None

    def get(self, name: str, default: Any = None) -> Any:
        """Return the field of that name, or the default."""
        return getattr(self, name, default)


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Selects dead letters. All conditions that are given must hold."""

    ids: Sequence[int] | None = None
    queue: str | None = None
    group: str | None = None
    key: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    partition: str | None = None
    #: The kind of error, as in :class:`DeadLetterKind`.
    kind: str | None = None
    stage: str | None = None
    #: The id above which the dead letters are.
    after: int | None = None

    def __post_init__(self) -> None:
        if self.ids is not None:
            ids: object = self.ids
            if isinstance(ids, str | bytes) or not isinstance(ids, Collection):
                raise InvalidRequest(f"ids must be a list of numbers of dead letters, not {short_repr(ids)}")
            for id in ids:
                check_integer("the number of a dead letter", id, -MAX_ID, MAX_ID)
        if self.queue is not None:
            check_name(self.queue, "queue")
        if self.group is not None:
            check_name(self.group, "group")
        for name in ("key", "error", "partition", "kind", "stage"):
            if getattr(self, name) is not None:
                check_text(getattr(self, name), name)
        if self.after is not None:
            check_integer("after", self.after, -MAX_ID, MAX_ID)
        check_timestamp("since", self.since)
        check_timestamp("until", self.until)


@dataclass(frozen=True, slots=True)
class DeadLetterKind:
    """Dead letters of one group with similar errors."""

    queue: str
    group: str
    stage: str
    #: The first line of the error, with ``#`` in place of numbers and ids.
    kind: str
    count: int
    first_failed_at: datetime
    failed_at: datetime
    newest: int
    #: False if the queue has more dead letters than were counted.
    is_whole: bool = True

    @property
    def filter(self) -> DeadLetterFilter:
        """The filter that selects these dead letters."""
        # Rejected input has no group, and the empty name is not a valid condition.
        return DeadLetterFilter(queue=self.queue, group=self.group or None, kind=self.kind, stage=self.stage)


@dataclass(frozen=True, slots=True)
class CopiedFields:
    """All fields of an object, or all except some."""

    excluded: frozenset[str]


@dataclass(frozen=True, slots=True)
class MappedField:
    """A field that a mapping copies or computes."""

    name: str
    #: The field that is copied as it is, if the object has it.
    source: str | None
    #: The query that computes the value as JSON text from ``data``, a JSON object with ``columns``.
    query: str
    parameters: Mapping[str, object]
    columns: frozenset[str]
    #: Returns the most bytes of all values that it is computed from, by the sizes of the columns.
    max_bytes: Callable[[Mapping[str, int]], int]
    is_number: bool


@dataclass(frozen=True, slots=True)
class JsonMapping:
    """Makes one JSON object of another. A later field replaces an earlier one of the same name."""

    text: str
    fields: Sequence[CopiedFields | MappedField]


#: Makes the new data of a dead letter. A function returns JSON text, or raises InvalidRequest with the reason why there
#: is none.
Edit: TypeAlias = Callable[[DeadLetter], bytes] | JsonMapping


class DeadLetterEdit(Struct, frozen=True):
    """The data of a dead letter before and after an edit, as a preview of its redrive."""

    id: int
    queue: str
    group: str
    key: str | None
    error: str
    before_text: Raw = field(name="before")
    #: JSON null if the data cannot be edited.
    after_text: Raw = field(name="after")
    #: False if the event would be sent back as it is, and may fail again.
    is_changed: bool = field(name="changed")
    #: Why the dead letter would not be redriven; None if it would be.
    problem: str | None = None

    @classmethod
    def of(cls, letter: DeadLetter, after: bytes | None, problem: str | None) -> DeadLetterEdit:
        """Return the edit of a dead letter. Differences in white space are no change."""
        before = json_format(letter.raw, indent=-1)
        is_changed = after is not None and json_format(after, indent=-1) != before
        origin = (letter.id, letter.queue, letter.group, letter.key, letter.error)
        return cls(*origin, letter.text, Raw(b"null" if after is None else after), is_changed, problem)

    @property
    def before(self) -> Any:
        """The data of the dead letter."""
        return json.decode(bytes(self.before_text))

    @property
    def after(self) -> Any:
        """The data that would be redriven; None if the data cannot be edited."""
        return json.decode(bytes(self.after_text))


@dataclass(frozen=True, slots=True)
class Redrive:
    """How many dead letters were redriven and how many were not, with the reasons of the first that were not."""

    replayed: int
    failed: int
    problems: dict[int, str] = dataclass_field(default_factory=dict)
