"""Run a command so that a ``fork()`` in another thread does not inherit its pipes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.core.lock_file import no_fork


def run(
    command: Sequence[str | Path], *, uid: int | None = None, gid: int | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. ``uid`` and ``gid`` set its user and its only group; Popen gets the options."""
    account: dict[str, Any] = {} if uid is None else {"user": uid, "group": gid, "extra_groups": []}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with no_fork:
        process: subprocess.Popen[str] = subprocess.Popen(  # noqa: S603
            command, text=True, errors="replace", **{**streams, **account, **options}
        )
    with process:
        try:
            output, errors = process.communicate()
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)
