"""Queue options of the protocol, and their conversion to and from the options of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from penstock.log.queue import Queue
from penstock.log.queue_options import DEFAULT_DEDUP_SECONDS, DEFAULT_DEPTH

#: The default of each option. retryDelay is 0 because these clients expect a failed message again at once.
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

_DEDUP_SECONDS = DEFAULT_DEDUP_SECONDS["key"]
#: The largest message, unless the queue is configured otherwise.
_MAX_MESSAGE_BYTES = 16 << 20

_Number = float | None | UnsetType
_Count = int | None | UnsetType
_Flag = bool | None | UnsetType


class GivenOptions(msgspec.Struct, rename="camel"):
    """The options in a request. An absent option keeps its value, null resets it to its default."""

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


def merge_options(current: Mapping[str, Any], given: GivenOptions, *, replace: bool) -> dict[str, Any]:
    """Return the options after a change; with ``replace``, absent options get their defaults."""
    merged = {**DEFAULTS, **({} if replace else current)}
    for name, value in msgspec.to_builtins(given).items():
        merged[name] = DEFAULTS[name] if value is None else value
    return merged


def to_log_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert to options of the log. priority and ttl are stored but have no effect."""
    limits = [options["maxWaitTimeSeconds"]]
    if options["retentionEnabled"]:
        limits.append(options["retentionSeconds"])
    # These apply to all messages, completedRetentionSeconds only to those that every group has read.
    unread = min(filter(None, limits), default=None)
    completed = options["completedRetentionSeconds"] if options["retentionEnabled"] else 0
    retention = unread or completed or None
    return {
        "lease_seconds": options["leaseTime"] or DEFAULTS["leaseTime"],
        "retry_limit": options["retryLimit"],
        "retry_delay_ms": options["retryDelay"],
        "delay_seconds": options["delayedProcessing"],
        "quiet_seconds": options["windowBuffer"],
        # 0 means no limit of its own: the default limits of the log apply.
        "max_depth_events": options["maxSize"] or DEFAULT_DEPTH,
        "max_unread_events": options["maxSize"] or None,
        "retention_seconds": retention,
        "retention_drops_unread": unread is not None,
        # The log keeps messages for as long as it knows their ids.
        "dedup_window_seconds": min(retention or _DEDUP_SECONDS, _DEDUP_SECONDS),
        "max_event_bytes": _MAX_MESSAGE_BYTES,
        "encrypted": options["encryptionEnabled"],
    }


def from_queue(queue: Queue) -> dict[str, Any]:
    """Return the options of a queue as the protocol names them."""
    retention = queue.retention_seconds
    return {
        **DEFAULTS,
        "leaseTime": queue.lease_seconds,
        "retryLimit": queue.retry_limit,
        "retryDelay": queue.retry_delay_ms,
        "delayedProcessing": queue.delay_seconds,
        "windowBuffer": queue.quiet_seconds,
        "encryptionEnabled": queue.encrypted,
        "retentionEnabled": retention is not None,
        "retentionSeconds": (retention or 0) if queue.retention_drops_unread else 0,
        "completedRetentionSeconds": 0 if queue.retention_drops_unread else retention or 0,
    }
