"""The options of a queue, as options of a command."""

from __future__ import annotations

import copy
import inspect
from typing import Annotated, Any, Literal, get_args

import typer

_PANEL = "Options of the queue"
_NONE = "none"


def _option(help: str, default: str, metavar: str) -> Any:
    return typer.Option(help=help, show_default=default, metavar=metavar, rich_help_panel=_PANEL)


def queue_options(
    lease_seconds: Annotated[
        float | None, _option("How long a consumer may take before its events go to another.", "300", "SECONDS")
    ] = None,
    retry_limit: Annotated[
        int | None, _option("How often a failed event is tried again before it is a dead letter.", "3", "N")
    ] = None,
    retry_delay_ms: Annotated[int | None, _option("How long a failed event waits for that.", "1000", "MS")] = None,
    expiry_limit: Annotated[
        str | None,
        _option(
            "How often a lease on an event may end without an answer before it is a dead letter; none: any number.",
            _NONE,
            "N|none",
        ),
    ] = None,
    delay_seconds: Annotated[
        float | None, _option("How long an event waits before it is delivered first.", "0", "SECONDS")
    ] = None,
    quiet_seconds: Annotated[
        float | None, _option("How long nothing must be pushed to a partition before it is read.", "0", "SECONDS")
    ] = None,
    retention_seconds: Annotated[
        str | None, _option("How long events are kept, at least; none: for ever.", _NONE, "SECONDS|none")
    ] = None,
    retention_drops_unread: Annotated[
        Literal["yes", "no"] | None,
        _option("Whether retention drops events that a group has not read yet.", "no", "yes|no"),
    ] = None,
    dedup_window_seconds: Annotated[
        float | None,
        _option(
            "How long an event's id keeps another with the same id out; 0: not at all.", "3600, by hash 0", "SECONDS"
        ),
    ] = None,
    max_depth_events: Annotated[
        str | None,
        _option("How far the slowest group may be behind before pushes are refused.", "100000", "N|none"),
    ] = None,
    overflow: Annotated[
        Literal["refuse", "shed"] | None,
        _option("What becomes of pushes that are too much: refused, or dropped and counted.", "refuse", "refuse|shed"),
    ] = None,
    away_seconds: Annotated[
        str | None,
        _option("How long a group may be away and still hold pushes back; none: for ever.", "86400", "SECONDS|none"),
    ] = None,
    key_field: Annotated[
        str | None, _option("The field of the events that holds the key, where a push names none.", _NONE, "NAME|none")
    ] = None,
    id_field: Annotated[str | None, _option("The same for the id.", _NONE, "NAME|none")] = None,
    time_field: Annotated[str | None, _option("The same for the time.", _NONE, "NAME|none")] = None,
    max_event_bytes: Annotated[
        str | None, _option("The largest event, in bytes of JSON.", "PENSTOCK_MAX_EVENT_BYTES", "BYTES|none")
    ] = None,
    max_redrives: Annotated[int | None, _option("How often one dead letter may be sent back.", "10", "N")] = None,
) -> dict[str, object]:
    """Those that were given, as the log takes them."""
    given: dict[str, object] = {
        "lease_seconds": lease_seconds,
        "retry_limit": retry_limit,
        "retry_delay_ms": retry_delay_ms,
        "delay_seconds": delay_seconds,
        "quiet_seconds": quiet_seconds,
        "retention_drops_unread": None if retention_drops_unread is None else retention_drops_unread == "yes",
        "dedup_window_seconds": dedup_window_seconds,
        "max_redrives": max_redrives,
        "overflow": overflow,
    }
    texts = {
        "expiry_limit": expiry_limit,
        "retention_seconds": retention_seconds,
        "max_depth_events": max_depth_events,
        "max_event_bytes": max_event_bytes,
        "away_seconds": away_seconds,
    }
    names = {"key_field": key_field, "id_field": id_field, "time_field": time_field}
    given |= {name: value for name, value in names.items() if value != _NONE}
    options = {name: value for name, value in given.items() if value is not None}
    options |= {name: None for name, value in names.items() if value == _NONE}
    return options | {name: _number_or_none(name, text) for name, text in texts.items() if text is not None}


def _unchanged(parameter: inspect.Parameter) -> inspect.Parameter:
    kind, option = get_args(parameter.annotation)
    option = copy.copy(option)
    option.show_default = False
    return parameter.replace(annotation=Annotated[kind, option])


def queue_changes(**given: Any) -> dict[str, object]:
    """The same for a queue that is there: what is not given stays as it is, so no default is shown."""
    return queue_options(**given)


_signature = inspect.signature(queue_options, eval_str=True)
queue_changes.__signature__ = _signature.replace(  # type: ignore[attr-defined]  # read by inspect
    parameters=[_unchanged(parameter) for parameter in _signature.parameters.values()]
)


def _number_or_none(name: str, text: str) -> float | None:
    if text.lower() == _NONE:
        return None
    try:
        return float(text) if name.endswith("_seconds") else int(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a number nor {_NONE}", param_hint=f"'--{name.replace('_', '-')}'"
        ) from None


def show_option(value: object) -> str:
    """An option's value for people."""
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
