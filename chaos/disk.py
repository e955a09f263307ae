"""A small disk that can be filled: a tmpfs, if this process may mount one."""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import suppress
from pathlib import Path

_BLOCK = bytes(1 << 16)


class Disk:
    """A file system at ``path``, or a plain directory, which cannot be filled."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self.path = path
        self._ballast = path / "ballast"
        path.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "penstock-chaos", str(path)],
            capture_output=True,
            check=False,
        )
        self.can_be_filled = done.returncode == 0

    def fill(self) -> None:
        """Fill the disk."""
        file = os.open(self._ballast, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            for size in (1 << 16, 1 << 12, 1 << 9):
                self._fill_with(file, _BLOCK[:size])
        finally:
            os.close(file)

    def refill(self) -> None:
        """Fill the space that has become free."""
        with suppress(FileNotFoundError):
            if self._ballast.stat().st_size:
                self.fill()

    def free(self) -> None:
        """Free the space."""
        self._ballast.unlink(missing_ok=True)

    def remove(self) -> None:
        """Unmount it. Its contents are lost."""
        if self.can_be_filled:
            subprocess.run(["umount", "--lazy", str(self.path)], check=False, capture_output=True)

    def _fill_with(self, file: int, block: bytes) -> None:
        while True:
            try:
                os.write(file, block)
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    return
                raise
