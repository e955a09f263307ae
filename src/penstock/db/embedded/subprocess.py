"""Run a command so that a ``fork()`` in another thread does not inherit its pipes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.core.fork_guard import no_fork


def run(
    command: Sequence[str | Path],
    *,
    stderr: int = subprocess.PIPE,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    umask: int = -1,
    start_new_session: bool = False,
    pass_fds: Sequence[int] = (),
    uid: int | None = None,
    gid: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. ``uid`` and ``gid`` set its user and its only group."""
    with no_fork:
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            cwd=cwd,
            env=env,
            umask=umask,
            start_new_session=start_new_session,
            pass_fds=pass_fds,
            user=uid,
            group=gid,
            extra_groups=[] if uid is not None else None,
        )
    with process:
        try:
            output, errors = process.communicate()
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)
