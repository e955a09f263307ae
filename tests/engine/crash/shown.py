"""A password that nobody is to see, and a look for it in all that Spark writes down."""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from pathlib import Path

PASSWORD = "hidden-from-view"  # noqa: S105 - the server asks for none


def shows(path: Path) -> bool:
    """Whether the password is in a file, plainly or packed for the journey."""
    content = path.read_bytes()
    packed = re.findall(rb"[A-Za-z0-9+/]{40,}={0,2}", content)
    return any(PASSWORD.encode() in text for text in (content, *(_unpacked(text) for text in packed)))


def _unpacked(text: bytes) -> bytes:
    with suppress(ValueError):
        return base64.b64decode(text + b"=" * (-len(text) % 4))
    return b""


class EventLog:
    """Spark's log of events, from which come its pages, live or in its history server."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory

    def options(self) -> list[str]:
        """What a command is told to write it."""
        conf = {"enabled": "true", "dir": self._directory.as_uri(), "compress": "false", "rolling.enabled": "false"}
        return [part for key, value in conf.items() for part in ("--conf", f"spark.eventLog.{key}={value}")]

    def files(self) -> list[Path]:
        """What was written, once it is whole."""
        found = list(self._directory.iterdir())
        return [] if any(path.suffix == ".inprogress" for path in found) else found
