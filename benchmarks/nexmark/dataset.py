"""The files of a workload: NDJSON per table and block, and the side input.

The events of the queues, of Flink and of DuckDB come from these files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyarrow import csv

from benchmarks.nexmark.events import TABLES, Workload, json_lines, side_input


@dataclass(frozen=True, slots=True)
class Dataset:
    """Events in a directory per table, in the order of the file names."""

    workload: Workload
    directory: Path

    def write(self) -> None:
        """Write all files."""
        for table in TABLES:
            (self.directory / table).mkdir(parents=True)
        for number, block in enumerate(self.workload.blocks()):
            for table, rows in block.items():
                (self.directory / table / f"{number:05d}.json").write_bytes(json_lines(rows))
        self.side_input.parent.mkdir()
        csv.write_csv(side_input(), self.side_input, csv.WriteOptions(include_header=False))

    def files(self, table: str) -> list[Path]:
        return sorted((self.directory / table).iterdir())

    @property
    def side_input(self) -> Path:
        """The CSV file that query 13 joins with: key, value."""
        return self.directory / "side_input" / "rows.csv"
