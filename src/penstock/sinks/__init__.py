"""Sinks: deliver the events of a queue to a destination, as a consumer group with retries and dead letters."""

from penstock.core.backoff import Backoff
from penstock.core.errors import SinkBusy, SinkClosed, SinkError, SinkRejected
from penstock.sinks.alerts import Alerts, RuleStore
from penstock.sinks.base import Sink, TransactionalSink
from penstock.sinks.console import Console
from penstock.sinks.delivery.sink_worker import SinkWorker
from penstock.sinks.delivery.sinks import Sinks
from penstock.sinks.delivery.stream_sinks import run_sinks_in_background
from penstock.sinks.files.file import File
from penstock.sinks.files.parquet import Parquet
from penstock.sinks.forward import Forward
from penstock.sinks.function import Call
from penstock.sinks.http.webhook import Webhook
from penstock.sinks.sink_options import Counters, SinkOptions
from penstock.sinks.table import Table
from penstock.stream.sinks import set_sink_runner

set_sink_runner(run_sinks_in_background)

__all__ = [
    "Alerts",
    "Backoff",
    "Call",
    "Console",
    "Counters",
    "File",
    "Forward",
    "Parquet",
    "RuleStore",
    "Sink",
    "SinkBusy",
    "SinkClosed",
    "SinkError",
    "SinkOptions",
    "SinkRejected",
    "SinkWorker",
    "Sinks",
    "Table",
    "TransactionalSink",
    "Webhook",
]
