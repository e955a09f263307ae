"""A virtual environment per peer, with pinned versions, created once in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import platformdirs

HERE = Path(__file__).parent


class PeerUnavailable(Exception):
    """A peer cannot be measured on this machine."""


def python_for(name: str) -> Path:
    """Return the interpreter of the peer's environment. Creates the environment if it does not exist."""
    requirements = HERE / f"{name}.txt"
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:16]
    home = Path(platformdirs.user_cache_dir("penstock", appauthor=False)) / "benchmarks" / f"{name}-{digest}"
    python = home / "bin" / "python"
    if (home / "ready").exists():
        return python
    print(f"Installing {name} into its own environment (once)", flush=True)
    try:
        shutil.rmtree(home, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(home)])
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        # The file lists every package. Without --no-deps, pip looks for a requirement with extras beside its pin.
        _run([*pip, "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(requirements)])
    except OSError as error:
        raise PeerUnavailable(f"its environment could not be created: {error}") from error
    (home / "ready").touch()
    return python


def _run(command: list[str]) -> None:
    # PYTHONPATH would add the packages of this environment.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise PeerUnavailable(f"it could not be installed: {output[-1] if output else done.returncode}")
