"""A lock that delays every ``fork()`` of this process.

Code holds it while it opens a file and registers it for closing in forked children. A child that is forked in between
would inherit a descriptor that nothing closes: it would keep a file lock, or keep a pipe's end of file from arriving.
"""

from __future__ import annotations

import os
import threading

# Reentrant, because a signal handler may fork.
no_fork = threading.RLock()

os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=no_fork.release)
