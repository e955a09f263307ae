"""Metrics on a port of a process that serves nothing else, as one that runs queries."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from penstock.core.errors import PenstockError
from penstock.server.api import health
from penstock.server.app import create_app
from penstock.server.metrics import routes
from penstock.server.process.worker import Worker
from penstock.server.run import address, listen
from penstock.server.settings import ServerSettings

ENDPOINTS = (*routes.PROCESSOR_ENDPOINTS, *health.ENDPOINTS)
#: A scrape asks one thing after the other.
_CONNECTIONS = 2
_END_SECONDS = 10.0


@contextmanager
def metrics_port(settings: ServerSettings) -> Iterator[str]:
    """Answer ``/metrics``, ``/healthz`` and ``/readyz`` from a thread of this process while the block runs; where."""
    # Nobody else counts on its board, and a scrape is no trace.
    core = dataclasses.replace(settings.core, pool_size=_CONNECTIONS, tracing=False)
    settings = dataclasses.replace(settings, core=core, workers=1, metrics_dir=None, request_log="none")
    ready, failed = threading.Event(), list[BaseException]()
    theirs, ours = os.pipe()
    with listen(settings) as listening:
        worker = Worker(settings, listening, ready.set, theirs, create=partial(create_app, endpoints=ENDPOINTS))

        def run() -> None:
            try:
                worker.run()
            except BaseException as error:
                failed.append(error)
            finally:
                ready.set()

        thread = threading.Thread(target=run, name="penstock metrics", daemon=True)
        thread.start()
        ready.wait()
        try:
            if failed:
                raise failed[0] if isinstance(failed[0], PenstockError) else RuntimeError("no metrics") from failed[0]
            yield f"{address(settings, listening)}/metrics"
        finally:
            # What the worker takes for the end of its parent.
            os.close(ours)
            thread.join(_END_SECONDS)
            os.close(theirs)
