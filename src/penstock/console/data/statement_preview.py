"""Computes views from the newest events in a child process, since a console has no JVM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from penstock.core.errors import Conflict, PenstockError
from penstock.core.formatting import duration, size
from penstock.core.settings import Settings, child_environment

#: Spark takes seconds to start, on a busy machine longer.
_MAX_SECONDS = 120.0
_MAX_BYTES = 8 << 20
#: Java exits after the process that started it, and deletes its files.
_STOP_SECONDS = 10.0
_MAX_ERROR_CHARACTERS = 2_000


class PreviewFailed(PenstockError):
    """A preview could not be computed."""


@dataclass(frozen=True, slots=True)
class ViewPreview:
    name: str
    #: The rows, with numbers as integers and decimals, which are exact.
    rows: Sequence[dict[str, Any]]
    #: The message about events that were left out.
    warnings: Sequence[str]


class StatementPreviews:
    """Runs one preview at a time: each needs the memory of a JVM."""

    def __init__(self, settings: Settings, max_seconds: float = _MAX_SECONDS) -> None:
        self._settings = settings
        self._max_seconds = max_seconds
        self._slot = asyncio.Semaphore(1)

    async def run(self, statements: str, newest: int) -> list[ViewPreview]:
        """Compute the views from the newest events of each queue. A cancelled preview ends its process.

        Raises:
            Conflict: Another preview is running.
            PreviewFailed: The statements failed, took too long, or have too large a result.
        """
        if self._slot.locked():
            raise Conflict("another preview is running: wait for it to end")
        async with self._slot:
            with TemporaryDirectory(prefix="penstock-preview-") as name:
                return await self._run_in(Path(name), statements, newest)

    async def _run_in(self, directory: Path, statements: str, newest: int) -> list[ViewPreview]:
        file, out, errors = (directory / name for name in ("views.sql", "out", "errors"))
        file.write_text(statements)
        command = [sys.executable, "-m", "penstock", "sql", str(file), "--preview", str(newest), "--json"]
        with out.open("wb") as stdout, errors.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *command,
                "--master",
                "local[1]",
                env=child_environment(self._settings),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(self._max_seconds):
                code = await process.wait()
        except TimeoutError:
            limit = duration(self._max_seconds)
            raise PreviewFailed(f"the preview took longer than {limit}: compute it from fewer events") from None
        finally:
            await asyncio.shield(_stop(process))
        if code != 0:
            raise PreviewFailed(_error_of(errors))
        if out.stat().st_size > _MAX_BYTES:
            raise PreviewFailed(f"the rows of the preview have more than {size(_MAX_BYTES)}: add a LIMIT or a WHERE")
        previews = json.loads(out.read_text(), parse_float=Decimal)
        return [ViewPreview(name, each["rows"], each["warnings"]) for name, each in previews.items()]


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the process and the Java that it started."""
    if process.returncode is None:
        process.terminate()
    for _ in range(int(_STOP_SECONDS / 0.1)):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _error_of(errors: Path) -> str:
    """Return the message of the command without its prefix. Spark's own lines come before it."""
    text = errors.read_text(errors="replace").strip()
    _, found, message = text.rpartition("error: ")
    return (message if found else text)[-_MAX_ERROR_CHARACTERS:] or "the preview ended without a message"
