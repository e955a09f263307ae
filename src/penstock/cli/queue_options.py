"""The options of a queue as command-line options."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Literal

import typer

from penstock.log.queue_options import (
    DEFAULTS,
    DESCRIPTIONS,
    format_option,
    is_nullable_option,
    option_choices,
    parse_option,
)

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
    option = typer.Option(
        help=DESCRIPTIONS[name], show_default=default, metavar=metavar, rich_help_panel="Queue options"
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


QUEUE_OPTIONS = [_parameter(name, _DEFAULTS.get(name) or format_option(DEFAULTS[name])) for name in DESCRIPTIONS]
#: The same options without defaults in their help: an option that is not given keeps its value.
QUEUE_CHANGES = [_parameter(name, default=False) for name in DESCRIPTIONS]


def parse_queue_options(given: dict[str, Any]) -> dict[str, object]:
    """Return the options that were given, in the form that the log accepts."""
    return {name: parse_option(name, value) for name, value in given.items() if value is not None}
