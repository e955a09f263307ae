"""A Parquet file as a source."""

from __future__ import annotations

import asyncio
import base64
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.core import json
from penstock.core.errors import ConfigurationError, InvalidRequest, NotFound
from penstock.log.write.result import Rejected
from penstock.sources import rotation
from penstock.sources.base import Position, Read, Source

if TYPE_CHECKING:
    import pyarrow as pa

#: What a file is known by: so much of its beginning and of its end, where its own index is.
_MARK_BYTES = 64 << 10


class Parquet(Source):
    """The rows of a Parquet file, or of those of a directory in the order of their names, as objects.

    With ``follow``, files that come into the directory later are read too; each must come whole, by a rename say, and
    with a name after those before it. A file that was written anew since its last row was read is read again. What JSON
    does not have becomes what is nearest to it: numbers that are none null, bytes base64, times those of microseconds.
    It needs pyarrow (``pip install 'penstock[spark]'``).
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
            try:
                mark = _mark(path)
                # A position that an earlier version stored has no mark.
                row = at["row"] if path.name == at["file"] and at.get("mark", mark) == mark else 0
                rows = self._rows(path, row, most)
            except (OSError, ValueError) as error:  # Arrow's own are among these
                raise InvalidRequest(f"{path} cannot be read as Parquet: {error}") from error
            if rows:
                lines, rejected = _as_json(rows, path.name, row)
                return Read(lines, {"file": path.name, "row": row + len(rows), "mark": mark}, rejected=rejected)
        return Read([], position, ended=not self._follow)

    def _files(self) -> list[Path]:
        return sorted(self._path.glob("[!.]*.parquet")) if self._path.is_dir() else [self._path]

    def _rows(self, path: Path, start: int, most: int) -> list[dict[str, Any] | Exception]:
        """Rows of a file from a number on, group by group; why not, where one is more than Python can tell."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        found: list[dict[str, Any] | Exception] = []
        with pq.ParquetFile(path) as file:
            first = 0
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                if first + count > start and len(found) < most:
                    table = file.read_row_group(group).slice(max(start - first, 0), most - len(found))
                    told = pa.schema([each.with_type(_to_microseconds(each.type)) for each in table.schema])
                    found += _told(table if told == table.schema else table.cast(told, safe=False))
                first += count
        return found


def _mark(path: Path) -> str:
    with path.open("rb") as file:
        return rotation.mark(file, os.fstat(file.fileno()).st_size, _MARK_BYTES)


def _to_microseconds(kind: pa.DataType) -> pa.DataType:
    """A type with times as Python has them: nanoseconds are more than it can tell."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time64(kind):
        return pa.time64("us")
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_to_microseconds(each.type)) for each in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_to_microseconds(kind.value_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_to_microseconds(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_to_microseconds(kind.key_type), _to_microseconds(kind.item_type))
    return kind


def _told(table: pa.Table) -> list[dict[str, Any] | Exception]:
    try:
        rows: list[dict[str, Any] | Exception] = table.to_pylist()
        return rows
    except (ValueError, OverflowError) as error:  # such as a year beyond 9999
        if table.num_rows == 1:
            return [error]
    half = table.num_rows // 2
    return _told(table.slice(0, half)) + _told(table.slice(half))


def _as_json(rows: Sequence[dict[str, Any] | Exception], file: str, first: int) -> tuple[list[bytes], list[Rejected]]:
    lines: list[bytes] = []
    rejected: list[Rejected] = []
    for i, row in enumerate(rows):
        if isinstance(row, Exception):
            rejected.append(Rejected(i, "data", str(row), json.encode({"file": file, "row": first + i})))
            continue
        try:
            lines.append(json.encode(row))
        except json.JSONProblem:
            try:
                lines.append(json.encode(_plain(row)))
            except json.JSONProblem as problem:
                rejected.append(Rejected(i, "data", str(problem), repr(row).encode("utf-8", "backslashreplace")))
    return lines, rejected


def _plain(value: Any) -> Any:
    """What is nearest to a value that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
