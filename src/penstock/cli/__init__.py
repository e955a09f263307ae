"""The ``penstock`` command line."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line with the arguments of this process."""
    # Imported here, so that importing this package does not load typer and the commands.
    from penstock.cli.app import app

    _exit_on_signals()
    app(prog_name="penstock")


def _exit_on_signals() -> None:
    """Let SIGTERM exit this process, which releases the embedded PostgreSQL, and treat SIGHUP like SIGTERM."""

    def terminate(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the second signal ends the process at once
        sys.exit(128 + signum)

    def hang_up(signum: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGTERM)  # commands may handle it in their own way

    signal.signal(signal.SIGTERM, terminate)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # nohup ignores it
        signal.signal(signal.SIGHUP, hang_up)
