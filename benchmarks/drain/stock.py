"""The events on disk: files of NDJSON, written once. The log is loaded from them; plain Spark and DuckDB read them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.drain.events import EPOCH_MS, LATENESS_MS, WINDOW_MS, Work

#: Events in a file. A batch of plain Spark's file source is so many whole files.
FILE_EVENTS = 50_000
_FIRST_MTIME = 1_700_000_000


@dataclass(slots=True)
class Stock:
    """The first events of a workload; it can grow."""

    work: Work
    directory: Path
    #: Plain Spark takes whole files.
    file_events: int = FILE_EVENTS
    files: list[Path] = field(default_factory=list)
    cents: int = 0

    @property
    def events(self) -> int:
        return len(self.files) * self.file_events

    def grow(self, events: int) -> list[Path]:
        """Write files until there are this many events; return the new files."""
        if events % self.file_events:
            raise ValueError(f"{events} events do not fill files of {self.file_events}")
        self.directory.mkdir(exist_ok=True)
        before = len(self.files)
        for number in range(before, events // self.file_events):
            lines, cents = self.work.lines(number * self.file_events, self.file_events)
            path = self.directory / f"{number:05d}.json"
            path.write_bytes(lines)
            # Spark's file source takes files by age: without this their order would be left to the file system's clock.
            os.utime(path, (_FIRST_MTIME + number, _FIRST_MTIME + number))
            self.files.append(path)
            self.cents += cents
        return self.files[before:]

    def watermark_ms(self) -> int:
        """Return the watermark after all events were read."""
        return EPOCH_MS + self.events * 1000 // self.work.per_second - LATENESS_MS

    def closed_before_ms(self) -> int:
        """Windows that begin before this are closed once everything was read; the others are open.

        Partitions end a little apart, so that the end of a window must not lie where they do.
        """
        into = (self.watermark_ms() - EPOCH_MS) % WINDOW_MS
        if not WINDOW_MS * 0.1 <= into <= WINDOW_MS * 0.9:
            raise ValueError(f"{self.events} events end where a window does: whether it is closed would be chance")
        return self.watermark_ms() - into
