"""A Parquet file as a source."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, ClassVar

from penstock.core import json
from penstock.core.errors import ConfigurationError, NotFound
from penstock.sources.contract import Position, Read, Source


class Parquet(Source):
    """The rows of a Parquet file, or of those of a directory in the order of their names, as objects.

    With ``follow``, files that come into the directory later are read too; each must come whole, by a rename say, and
    with a name after those before it. It needs pyarrow (``pip install 'penstock[spark]'``).
    """

    kind: ClassVar[str] = "parquet"

    def __init__(self, path: str | os.PathLike[str], *, follow: bool = False) -> None:
        self._path = Path(path).expanduser().absolute()
        self.name = f"parquet:{self._path}"[-200:]
        self._follow = follow

    async def open(self) -> None:
        """See that it can be read."""
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise ConfigurationError("Parquet files need pyarrow: pip install 'penstock[spark]'") from None
        if not await asyncio.to_thread(self._path.exists):
            raise NotFound(f"there is no file or directory {self._path}")

    async def read(self, position: Position, most: int) -> Read:
        """The next rows."""
        return await asyncio.to_thread(self._read, position, most)

    async def wait(self, seconds: float) -> None:
        """Look again later."""
        await asyncio.sleep(seconds)

    def _read(self, position: Position, most: int) -> Read:
        at = position or {"file": "", "row": 0}
        for path in self._files():
            if path.name < at["file"]:
                continue
            row = at["row"] if path.name == at["file"] else 0
            rows = self._rows(path, row, most)
            if rows:
                return Read([json.encode(each) for each in rows], {"file": path.name, "row": row + len(rows)})
        return Read([], position, ended=not self._follow)

    def _files(self) -> list[Path]:
        return sorted(self._path.glob("[!.]*.parquet")) if self._path.is_dir() else [self._path]

    def _rows(self, path: Path, start: int, most: int) -> list[dict[str, Any]]:
        """Rows of a file from a number on, group by group."""
        import pyarrow.parquet as pq

        found: list[dict[str, Any]] = []
        with pq.ParquetFile(path) as file:
            first = 0
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                if first + count > start and len(found) < most:
                    table = file.read_row_group(group)
                    found += table.slice(max(start - first, 0), most - len(found)).to_pylist()
                first += count
        return found
