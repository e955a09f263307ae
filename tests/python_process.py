"""Python programs in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files and processes to other users")


def run_python(program: str, *args: object) -> str:
    """Run a program and return its output."""
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, args)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
