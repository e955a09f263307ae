"""What a client of the plane can tell a queue, and which of our options that is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from penstock.server.http.errors import Problem

#: What each has that is not told. The delay of a retry is none here: these clients expect a failed message at once.
DEFAULTS: dict[str, Any] = {
    "leaseTime": 300,
    "retryLimit": 3,
    "retryDelay": 0,
    "priority": 0,
    "delayedProcessing": 0,
    "windowBuffer": 0,
    "maxSize": 0,
    "ttl": 3600,
    "retentionEnabled": False,
    "retentionSeconds": 0,
    "completedRetentionSeconds": 0,
    "encryptionEnabled": False,
    "deadLetterQueue": False,
    "dlqAfterMaxRetries": False,
    "maxWaitTimeSeconds": 0,
}

_Number = float | None | UnsetType
_Count = int | None | UnsetType
_Flag = bool | None | UnsetType


class Options(msgspec.Struct, rename="camel"):
    """The options of a queue as they are sent: what is absent stays as it is, null is the default."""

    lease_time: _Number = UNSET
    retry_limit: _Count = UNSET
    retry_delay: _Count = UNSET
    priority: _Number = UNSET
    delayed_processing: _Number = UNSET
    window_buffer: _Number = UNSET
    max_size: _Count = UNSET
    ttl: _Number = UNSET
    retention_enabled: _Flag = UNSET
    retention_seconds: _Number = UNSET
    completed_retention_seconds: _Number = UNSET
    encryption_enabled: _Flag = UNSET
    dead_letter_queue: _Flag = UNSET
    dlq_after_max_retries: _Flag = UNSET
    max_wait_time_seconds: _Number = UNSET

    def told(self) -> dict[str, Any]:
        """Those that were sent."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return told


def merged(before: Mapping[str, Any], told: Mapping[str, Any], *, replace: bool) -> dict[str, Any]:
    """The options after a change."""
    after = {**DEFAULTS, **({} if replace else before)}
    for name, value in told.items():
        after[name] = DEFAULTS[name] if value is None else value
    if after["encryptionEnabled"]:
        raise Problem(
            "invalid-request",
            "encryptionEnabled is not offered: payloads are stored as they are; encrypt the disk or the payload itself",
        )
    return after


def ours(options: Mapping[str, Any]) -> dict[str, Any]:
    """Our options for these. What the queue does without: priority, ttl and maxWaitTimeSeconds are only kept."""
    kept = options["retentionSeconds"] or options["completedRetentionSeconds"]
    retained = bool(options["retentionEnabled"] and kept)
    return {
        "lease_seconds": options["leaseTime"] or DEFAULTS["leaseTime"],
        "retry_limit": options["retryLimit"],
        "retry_delay_ms": options["retryDelay"],
        "delay_seconds": options["delayedProcessing"],
        "quiet_seconds": options["windowBuffer"],
        # 0 is "no limit of its own": ours is the one that every queue has.
        **({"max_depth_events": options["maxSize"]} if options["maxSize"] else {}),
        "retention_seconds": kept if retained else None,
        # Of the two, the first is about all messages and the second about those that everybody has read.
        "retention_drops_unread": retained and options["retentionSeconds"] > 0,
    }


def theirs(queue: Any) -> dict[str, Any]:
    """The options of a queue that was made elsewhere, as these clients know them."""
    return {
        **DEFAULTS,
        "leaseTime": queue.lease_seconds,
        "retryLimit": queue.retry_limit,
        "retryDelay": queue.retry_delay_ms,
        "delayedProcessing": queue.delay_seconds,
        "windowBuffer": queue.quiet_seconds,
        "retentionEnabled": queue.retention_seconds is not None,
        "retentionSeconds": (queue.retention_seconds or 0) if queue.retention_drops_unread else 0,
        "completedRetentionSeconds": 0 if queue.retention_drops_unread else queue.retention_seconds or 0,
    }
