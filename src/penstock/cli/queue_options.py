"""The options of a queue as command-line options."""

from __future__ import annotations

import copy
import inspect
from typing import Annotated, Any, Literal, get_args

import typer

_PANEL = "Queue options"
_NONE = "none"


def _option(help: str, default: str, metavar: str) -> Any:
    return typer.Option(help=help, show_default=default, metavar=metavar, rich_help_panel=_PANEL)


def queue_options(
    lease_seconds: Annotated[
        float | None,
        _option("How long a consumer may hold events before they are delivered to another consumer.", "300", "SECONDS"),
    ] = None,
    retry_limit: Annotated[
        int | None, _option("How often a failed event is retried before it becomes a dead letter.", "3", "N")
    ] = None,
    retry_delay_ms: Annotated[int | None, _option("The delay before a retry.", "1000", "MS")] = None,
    expiry_limit: Annotated[
        str | None,
        _option(
            "How often the lease on an event may expire before it becomes a dead letter; none: no limit.",
            _NONE,
            "N|none",
        ),
    ] = None,
    delay_seconds: Annotated[
        float | None, _option("The delay before an event is first delivered.", "0", "SECONDS")
    ] = None,
    quiet_seconds: Annotated[
        float | None, _option("How long a partition must receive no push before it is delivered.", "0", "SECONDS")
    ] = None,
    retention_seconds: Annotated[
        str | None, _option("How long events are kept at least; none: forever.", _NONE, "SECONDS|none")
    ] = None,
    retention_drops_unread: Annotated[
        Literal["yes", "no"] | None,
        _option("Whether retention drops events that a group has not read.", "no", "yes|no"),
    ] = None,
    dedup_window_seconds: Annotated[
        float | None,
        _option(
            "How long an event with the same id counts as a duplicate; 0: no deduplication.",
            "3600, by hash 0",
            "SECONDS",
        ),
    ] = None,
    max_depth_events: Annotated[
        str | None,
        _option("The lag of the slowest group above which pushes are refused; none: no limit.", "100000", "N|none"),
    ] = None,
    max_unread_events: Annotated[
        str | None,
        _option(
            "The number of events above which a queue without groups refuses pushes; none: no limit.",
            "the given --max-depth-events, else none",
            "N|none",
        ),
    ] = None,
    overflow: Annotated[
        Literal["refuse", "shed"] | None,
        _option("How a full queue handles pushes: refuse them, or drop and count them.", "refuse", "refuse|shed"),
    ] = None,
    invalid_events: Annotated[
        Literal["auto", "refuse", "dead_letter"] | None,
        _option(
            "How a push over HTTP with invalid events is treated: refuse it, or store the valid events and make dead "
            "letters of the others; auto: refuse it unless it has lines and no idempotency key.",
            "auto",
            "auto|refuse|dead_letter",
        ),
    ] = None,
    away_seconds: Annotated[
        str | None,
        _option("How long an inactive group still holds pushes back; none: forever.", "86400", "SECONDS|none"),
    ] = None,
    key_field: Annotated[
        str | None, _option("The field that holds the key of an event, unless the push names one.", _NONE, "NAME|none")
    ] = None,
    id_field: Annotated[
        str | None, _option("The field that holds the id of an event, unless the push names one.", _NONE, "NAME|none")
    ] = None,
    time_field: Annotated[
        str | None, _option("The field that holds the time of an event, unless the push names one.", _NONE, "NAME|none")
    ] = None,
    max_event_bytes: Annotated[
        str | None, _option("The maximum size of an event, in bytes of JSON.", "PENSTOCK_MAX_EVENT_BYTES", "BYTES|none")
    ] = None,
    max_redrives: Annotated[int | None, _option("How often a dead letter may be redriven.", "10", "N")] = None,
) -> None:
    """The options of a queue, as given on the command line. :func:`parse_queue_options` reads them."""


def _hide_default(parameter: inspect.Parameter) -> inspect.Parameter:
    kind, option = get_args(parameter.annotation)
    option = copy.copy(option)
    option.show_default = False
    return parameter.replace(annotation=Annotated[kind, option])


def queue_changes() -> None:
    """The same options without defaults in their help: an option that is not given keeps its value."""


_signature = inspect.signature(queue_options, eval_str=True)
queue_changes.__signature__ = _signature.replace(  # type: ignore[attr-defined]  # read by inspect
    parameters=[_hide_default(parameter) for parameter in _signature.parameters.values()]
)

_NUMBERS_OR_NONE = (
    "expiry_limit",
    "retention_seconds",
    "max_depth_events",
    "max_unread_events",
    "away_seconds",
    "max_event_bytes",
)


def parse_queue_options(given: dict[str, Any]) -> dict[str, object]:
    """Return the options that were given, in the form that the log accepts."""
    return {name: _parse(name, value) for name, value in given.items() if value is not None}


def _parse(name: str, value: Any) -> object:
    if name == "retention_drops_unread":
        return value == "yes"
    if isinstance(value, str) and value.lower() == _NONE:
        return None
    if name not in _NUMBERS_OR_NONE:
        return value
    try:
        return float(value) if name.endswith("_seconds") else int(value)
    except ValueError:
        raise typer.BadParameter(
            f"{value!r} is not a number or {_NONE}", param_hint=f"'--{name.replace('_', '-')}'"
        ) from None


def show_option(value: object) -> str:
    """Format the value of an option."""
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
