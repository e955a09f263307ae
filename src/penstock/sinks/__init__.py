"""Where events go when they leave: sinks, each a group on a queue with its own pace, retries and dead letters."""

from penstock.core.errors import SinkBusy, SinkClosed, SinkError, SinkRejected
from penstock.sinks.alerts import Alerts, Rules
from penstock.sinks.background import flowing_beside
from penstock.sinks.backoff import Backoff
from penstock.sinks.base import Sink, TransactionalSink
from penstock.sinks.console import Console
from penstock.sinks.files.file import File
from penstock.sinks.files.parquet import Parquet
from penstock.sinks.forward import Forward
from penstock.sinks.function import Call
from penstock.sinks.http.webhook import Webhook
from penstock.sinks.options import Counters, Pace
from penstock.sinks.runner import Sinks
from penstock.sinks.table import Table
from penstock.sinks.worker import Outlet
from penstock.stream.sink_binding import run_sinks_with

run_sinks_with(flowing_beside)

__all__ = [
    "Alerts",
    "Backoff",
    "Call",
    "Console",
    "Counters",
    "File",
    "Forward",
    "Outlet",
    "Pace",
    "Parquet",
    "Rules",
    "Sink",
    "SinkBusy",
    "SinkClosed",
    "SinkError",
    "SinkRejected",
    "Sinks",
    "Table",
    "TransactionalSink",
    "Webhook",
]
