"""A metrics port for a process that runs queries and is not a server."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from penstock.core.errors import PenstockError
from penstock.server.api import health_probes, metrics
from penstock.server.app import create_app
from penstock.server.process.http_worker import Worker
from penstock.server.process.listener import address, listen
from penstock.server.settings import ServerSettings

ENDPOINTS = (*metrics.PROCESSOR_ENDPOINTS, *health_probes.routes)
#: A scrape runs its statements one after the other.
_DATABASE_CONNECTIONS = 2
_STOP_SECONDS = 10.0


@contextmanager
def metrics_port(settings: ServerSettings) -> Iterator[str]:
    """Serve ``/metrics``, ``/healthz`` and ``/readyz`` from a thread while the block runs; yield the URL of metrics."""
    core = dataclasses.replace(settings.core, pool_size=_DATABASE_CONNECTIONS, tracing=False)
    settings = dataclasses.replace(settings, core=core, workers=1, metrics_dir=None, request_log="none")
    ready, failure = threading.Event(), list[BaseException]()
    read_end, write_end = os.pipe()
    with listen(settings) as listening:
        worker = Worker(settings, listening, ready.set, read_end, create=partial(create_app, endpoints=ENDPOINTS))

        def run() -> None:
            try:
                worker.run()
            except BaseException as error:
                failure.append(error)
            finally:
                ready.set()

        thread = threading.Thread(target=run, name="penstock metrics", daemon=True)
        thread.start()
        ready.wait()
        try:
            for error in failure:
                if isinstance(error, PenstockError):
                    raise error
                raise RuntimeError("the metrics port could not be started") from error
            yield f"{address(settings, listening)}/metrics"
        finally:
            # The worker stops as if its supervisor had died.
            os.close(write_end)
            thread.join(_STOP_SECONDS)
            os.close(read_end)
