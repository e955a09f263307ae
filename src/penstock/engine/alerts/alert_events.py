"""Alerts as events of a queue. The id of an alert is the same on every push, so that it is sent once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from penstock.core import json
from penstock.log.write.encode.batch import Batch
from penstock.log.write.encode.json_events import JsonEvents
from penstock.log.write.encode.validation import MAX_ID_BYTES
from penstock.stream.rule_evaluation import Alert
from penstock.stream.rules import Rule


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """An alert as it is pushed to its queue."""

    key: str
    #: Unique to the alert and the same on every push, so that duplicates are dropped.
    id: str
    line: bytes


def alert_event(alert: Alert, turn: int) -> AlertEvent:
    """Convert an alert to an event; ``turn`` counts how often the rule has fired and resolved for the key."""
    rest = f"{alert.since.isoformat()}/{turn}/{alert.state}"
    id = f"{alert.rule}/{alert.key}/{rest}"
    if len(id.encode()) > MAX_ID_BYTES:
        id = f"{blake2b(f'{alert.rule}/{alert.key}'.encode(), digest_size=16).hexdigest()}/{rest}"
    fields = {name: value for name, value in msgspec.to_builtins(alert).items() if value is not None}
    return AlertEvent(alert.key or alert.rule, id, json.encode(fields))


def alert_batch(rule: Rule, alerts: Sequence[AlertEvent]) -> Batch:
    """Return the batch that pushes alerts to the queue of their rule."""
    events = JsonEvents(
        [alert.line for alert in alerts], [alert.key for alert in alerts], [alert.id for alert in alerts]
    )
    return Batch(rule.alerts, events)
