"""What the embedded server says: before its own log begins, and in it."""

from __future__ import annotations

from pathlib import Path


class ServerLog:
    """The server's last words, for error messages, and its signs of life."""

    def __init__(self, directory: Path) -> None:
        self.startup = directory / "startup.log"
        self.directory = directory / "log"

    def tail(self) -> str:
        """The last lines that the latest server of this directory wrote."""
        first = _read_end(self.startup)
        # The log is of this start only if the server got as far as opening it.
        return last_lines(_read_end(self._newest()) if "redirecting log output" in first else first)

    def size(self) -> int:
        """A number that changes when the server says something."""
        path = self._newest()
        return path.stat().st_size if path.exists() else 0

    def _newest(self) -> Path:
        files = [path for path in self.directory.glob("*.log") if path.is_file() and not path.is_symlink()]
        return max(files, key=lambda path: path.stat().st_mtime, default=self.startup)


def last_lines(text: str) -> str:
    """Return as much as an error message should hold."""
    return "\n".join(text.splitlines()[-20:])


def _read_end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16_384))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
