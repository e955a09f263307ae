"""Spark's event log, and a search for a password in the files that Spark writes."""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from pathlib import Path

PASSWORD = "hidden-from-view"  # noqa: S105 - the server asks for none


def contains_password(path: Path) -> bool:
    """Return whether a file contains the password, as it is or in base64."""
    content = path.read_bytes()
    encoded = re.findall(rb"[A-Za-z0-9+/]{40,}={0,2}", content)
    return any(PASSWORD.encode() in text for text in (content, *(_decode(text) for text in encoded)))


def _decode(text: bytes) -> bytes:
    with suppress(ValueError):
        return base64.b64decode(text + b"=" * (-len(text) % 4))
    return b""


class EventLog:
    """Spark's event log, from which its web pages and its history server are made."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory

    def options(self) -> list[str]:
        """Return the options of a command that write the log."""
        conf = {"enabled": "true", "dir": self._directory.as_uri(), "compress": "false", "rolling.enabled": "false"}
        return [part for key, value in conf.items() for part in ("--conf", f"spark.eventLog.{key}={value}")]

    def files(self) -> list[Path]:
        """Return the files of the log; none until it is complete."""
        found = list(self._directory.iterdir())
        return [] if any(path.suffix == ".inprogress" for path in found) else found
