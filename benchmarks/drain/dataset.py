"""Datasets: NDJSON files of events. They are loaded into queues, and plain Spark and DuckDB read them directly."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.drain.events import EPOCH_MS, LATENESS_MS, WINDOW_MS, Workload

#: Events per file. A batch of Spark's file source consists of whole files.
FILE_EVENTS = 50_000
_FIRST_MTIME = 1_700_000_000


@dataclass(slots=True)
class Dataset:
    """The first events of a workload, in files."""

    workload: Workload
    directory: Path
    file_events: int = FILE_EVENTS
    files: list[Path] = field(default_factory=list)
    cents: int = 0

    @property
    def events(self) -> int:
        return len(self.files) * self.file_events

    def extend(self, events: int) -> list[Path]:
        """Write files up to a number of events. Return the new files."""
        if events % self.file_events:
            raise ValueError(f"{events} events are no multiple of the file size {self.file_events}")
        self.directory.mkdir(exist_ok=True)
        before = len(self.files)
        for number in range(before, events // self.file_events):
            lines, cents = self.workload.lines(number * self.file_events, self.file_events)
            path = self.directory / f"{number:05d}.json"
            path.write_bytes(lines)
            # Spark's file source orders files by modification time.
            os.utime(path, (_FIRST_MTIME + number, _FIRST_MTIME + number))
            self.files.append(path)
            self.cents += cents
        return self.files[before:]

    def watermark_ms(self) -> int:
        """Return the watermark after all events."""
        return EPOCH_MS + self.events * 1000 // self.workload.per_second - LATENESS_MS

    def closed_before_ms(self) -> int:
        """Return the start of the first window that is open after all events.

        Partitions end at slightly different times, so the dataset must not end near the end of a window.
        """
        offset = (self.watermark_ms() - EPOCH_MS) % WINDOW_MS
        if not WINDOW_MS * 0.1 <= offset <= WINDOW_MS * 0.9:
            raise ValueError(f"{self.events} events end near the end of a window, so it may be open or closed")
        return self.watermark_ms() - offset
