"""Log of the embedded PostgreSQL: ``startup.log`` until the server opens its own log."""

from __future__ import annotations

from pathlib import Path


class ServerLog:
    """Reads the end of the log for error messages, and its size as a sign of life."""

    def __init__(self, directory: Path) -> None:
        self.startup = directory / "startup.log"
        self.directory = directory / "log"

    def read_tail(self) -> str:
        """Return the last lines of the latest start."""
        startup = _read_end(self.startup)
        # The newest log belongs to this start only if the server got as far as opening it.
        return last_lines(_read_end(self._newest()) if "redirecting log output" in startup else startup)

    def size(self) -> int:
        """Return the size of the newest log, which grows with every message."""
        path = self._newest()
        return path.stat().st_size if path.exists() else 0

    def _newest(self) -> Path:
        files = [path for path in self.directory.glob("*.log") if path.is_file() and not path.is_symlink()]
        return max(files, key=lambda path: path.stat().st_mtime, default=self.startup)


def last_lines(text: str) -> str:
    """Return the last 20 lines, for an error message."""
    return "\n".join(text.splitlines()[-20:])


def _read_end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16_384))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
