"""The options of a queue as command-line options."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Literal

import typer

from penstock.log.options import DEFAULTS, format_option, is_nullable_option, option_choices, parse_option

_HELP = {
    "lease_seconds": "How long a consumer may hold events before they are delivered to another consumer.",
    "retry_limit": "How often a failed event is retried before it becomes a dead letter.",
    "retry_delay_ms": "The delay before a retry.",
    "expiry_limit": "How often the lease on an event may expire before it becomes a dead letter; none: no limit.",
    "delay_seconds": "The delay before an event is first delivered.",
    "quiet_seconds": "How long a partition must receive no push before it is delivered.",
    "retention_seconds": "How long events are kept at least; none: forever.",
    "retention_drops_unread": "Whether retention drops events that a group has not read.",
    "dedup_window_seconds": "How long an event with the same id counts as a duplicate; 0: no deduplication.",
    "max_depth_events": "The lag of the slowest group above which pushes are refused; none: no limit.",
    "max_unread_events": "The number of events above which a queue without groups refuses pushes; none: no limit.",
    "overflow": "How a full queue handles pushes: refuse them, or drop and count them.",
    "invalid_events": (
        "How a push over HTTP with invalid events is treated: refuse it, or store the valid events and make dead "
        "letters of the others; auto: refuse it unless it has lines and no idempotency key."
    ),
    "away_seconds": "How long an inactive group still holds pushes back; none: forever.",
    "key_field": "The field that holds the key of an event, unless the push names one.",
    "id_field": "The field that holds the id of an event, unless the push names one.",
    "time_field": "The field that holds the time of an event, unless the push names one.",
    "max_event_bytes": "The maximum size of an event, in bytes of JSON.",
    "max_redrives": "How often a dead letter may be redriven.",
}
#: Defaults that the log does not know.
_DEFAULTS = {
    "dedup_window_seconds": "3600, by hash 0",
    "max_event_bytes": "PENSTOCK_MAX_EVENT_BYTES",
    "max_unread_events": "the given --max-depth-events, else none",
}
_UNITS = {"seconds": "SECONDS", "ms": "MS", "field": "NAME", "bytes": "BYTES"}


def _parameter(name: str, default: str | bool) -> inspect.Parameter:
    choices = option_choices(name)
    metavar = "|".join(choices) or _UNITS.get(name.rpartition("_")[2], "N") + "|none" * is_nullable_option(name)
    kind: Any = Literal.__getitem__(choices) if choices else str
    option = typer.Option(help=_HELP[name], show_default=default, metavar=metavar, rich_help_panel="Queue options")
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


QUEUE_OPTIONS = [_parameter(name, _DEFAULTS.get(name) or format_option(DEFAULTS[name])) for name in _HELP]
#: The same options without defaults in their help: an option that is not given keeps its value.
QUEUE_CHANGES = [_parameter(name, default=False) for name in _HELP]


def parse_queue_options(given: dict[str, Any]) -> dict[str, object]:
    """Return the options that were given, in the form that the log accepts."""
    return {name: parse_option(name, value) for name, value in given.items() if value is not None}
