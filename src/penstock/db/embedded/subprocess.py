"""What a ``fork()`` in another thread must not cut in two.

A child that is forked while files are being opened has them open too, and nobody to close them: it would keep a
lock for ever, or the end of a command's output from ever being seen.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

# Reentrant, because a signal handler may fork.
no_fork = threading.RLock()
"""Held, it puts off any fork of this process."""

os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=no_fork.release)


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
    """Run a command to its end, as ``uid`` and ``gid`` and in no other group if they are given."""
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
