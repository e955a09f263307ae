"""``penstock serve``: one worker process, or several that share a port."""

from __future__ import annotations

import dataclasses
import logging
import resource
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.server.http.json_log import configure_json_logging
from penstock.server.process.http_worker import Worker
from penstock.server.process.listener import address, listen
from penstock.server.process.supervisor import Supervisor
from penstock.server.settings import ServerSettings

logger = logging.getLogger("penstock.server")

#: File descriptors for everything that is not a client connection: the database, files, pipes.
_RESERVED_FILES = 256


def serve(settings: ServerSettings) -> None:
    """Serve until SIGTERM or Ctrl-C. Requests that were accepted by then are committed and answered."""
    _raise_file_limit(settings.max_connections)
    with listen(settings) as listening:
        configure_json_logging(settings.core.log_level)
        if not settings.is_loopback and settings.tls_cert is None:
            logger.warning(
                "keys and events travel unencrypted: pass --tls-cert and --tls-key, or run behind a TLS proxy"
            )

        def announce() -> None:
            print(f"Listening on {address(settings, listening)}", flush=True)

        if settings.workers == 1:
            Worker(settings, listening, announce).run()
            return
        with TemporaryDirectory(prefix="penstock-") as directory:
            shared = dataclasses.replace(settings, metrics_dir=settings.metrics_dir or Path(directory))
            Supervisor(shared, listening, announce).run()


def _raise_file_limit(connections: int) -> None:
    """Raise the limit on open files to fit the connections, up to the hard limit of the system."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _RESERVED_FILES
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard) if hard > 0 else needed, hard))
