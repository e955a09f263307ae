"""Parses a sink from text such as ``file:out.jsonl``, for the command line and SQL."""

from __future__ import annotations

from penstock.core.errors import InvalidRequest, short_repr
from penstock.sinks.base import Sink
from penstock.sinks.console import Console
from penstock.sinks.files.file import File
from penstock.sinks.forward import Forward

KINDS = "console, file:PATH, parquet:DIRECTORY, queue:NAME, table:NAME, changes:TABLE, or a URL for a webhook"


def read_sink(text: str) -> Sink:
    """Return the sink that the text describes."""
    if text.startswith(("http://", "https://")):
        from penstock.sinks.http.webhook import Webhook

        return Webhook(text)
    kind, _, rest = text.partition(":")
    if kind == "console" and not rest:
        return Console()
    if rest:
        if kind == "file":
            return File(rest)
        if kind == "parquet":
            from penstock.sinks.files.parquet import Parquet

            return Parquet(rest)
        if kind == "queue":
            return Forward(rest)
        if kind in ("table", "changes"):
            from penstock.sinks.table import Table

            return Table(rest, changes=kind == "changes")
    raise InvalidRequest(f"{short_repr(text)} is not a sink: give {KINDS}")
