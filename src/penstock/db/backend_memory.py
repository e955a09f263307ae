"""Limits the memory of one PostgreSQL backend.

PostgreSQL has no such setting: ``work_mem`` holds for single sorts and hashes, and a query can change it. The operating
system has one: ``RLIMIT_DATA``, the private memory of a process, without the shared buffers. An allocation beyond it
fails with "out of memory", and the server continues.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import struct
import sys
from typing import Any

import psutil
from psycopg import AsyncConnection

from penstock.db.embedded.subprocess import run

_PEER_CREDENTIALS = struct.Struct("3i")


async def limit_backend_memory(conn: AsyncConnection[Any], max_bytes: int) -> bool:
    """Limit the private memory of the connection's backend. Return False if that is not possible.

    It is possible on Linux, for a server on this machine that is connected over a Unix socket and runs as the account
    of this process, or if this process is root.
    """
    if sys.platform != "linux":
        return False
    postmaster = _find_postmaster(conn.pgconn.socket)
    if not postmaster:
        return False
    try:
        backend = psutil.Process(conn.info.backend_pid)
        # In another container, the same number may be another process here.
        return backend.ppid() == postmaster and await asyncio.to_thread(_set_limit, backend, max_bytes)
    except (psutil.Error, OSError):
        return False


def _set_limit(backend: psutil.Process, max_bytes: int) -> bool:
    try:
        backend.rlimit(psutil.RLIMIT_DATA, (max_bytes, max_bytes))
        return True
    except psutil.AccessDenied:
        program = shutil.which("prlimit")
        if os.geteuid() != 0 or program is None:
            return False
    # Root in a container often lacks CAP_SYS_RESOURCE. The server's own account does not need it.
    command = [program, f"--pid={backend.pid}", f"--data={max_bytes}"]
    return run(command, uid=backend.uids().real, gid=backend.gids().real, cwd="/").returncode == 0


def _find_postmaster(descriptor: int) -> int:
    """Return the process that listens on the other end of a Unix socket; 0 if it is not on this machine."""
    with socket.socket(fileno=os.dup(descriptor)) as unix_socket:
        if unix_socket.family != socket.AF_UNIX:
            return 0
        credentials = unix_socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    pid, _, _ = _PEER_CREDENTIALS.unpack(credentials)
    return int(pid)
