"""``Parquet``: Parquet files as a source."""

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
from penstock.log.write.push_result import RejectedInput
from penstock.sources import rotation
from penstock.sources.base import Position, ReadResult, Source

if TYPE_CHECKING:
    import pyarrow as pa

#: How much of the beginning and of the end of a file identifies it. The index of the file is at its end.
_HASH_BYTES = 64 << 10


class Parquet(Source):
    """The rows of a Parquet file, or of all Parquet files of a directory in the order of their names.

    A file that was written again after its last row was read is read again. Values that JSON does not have are
    converted: NaN and infinity to null, bytes to base64, and nanoseconds to microseconds. The source needs pyarrow
    (``pip install '.[spark]'``).

    Args:
        path: The file or directory.
        follow: Read files that appear later too. A file must appear completely, such as by a rename, and its name must
            come after the others.
    """

    kind: ClassVar[str] = "parquet"

    def __init__(self, path: str | os.PathLike[str], *, follow: bool = False) -> None:
        self._path = Path(path).expanduser().absolute()
        self.name = f"parquet:{self._path}"[-200:]
        self._follow = follow

    async def open(self) -> None:
        """Check for pyarrow and for the file."""
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise ConfigurationError(
                "Parquet files need pyarrow: run `pip install '.[spark]'` in a checkout of Penstock"
            ) from None
        if not await asyncio.to_thread(self._path.exists):
            raise NotFound(f"there is no file or directory {self._path}")

    async def read(self, position: Position, limit: int) -> ReadResult:
        """Return the next rows."""
        return await asyncio.to_thread(self._read, position, limit)

    async def wait(self, seconds: float) -> None:
        """Wait for the next check of the directory."""
        await asyncio.sleep(seconds)

    def _read(self, position: Position, limit: int) -> ReadResult:
        last = position or {"file": "", "row": 0}
        for path in sorted(self._path.glob("[!.]*.parquet")) if self._path.is_dir() else [self._path]:
            if path.name < last["file"]:
                continue
            try:
                mark = _hash_file(path)
                # Positions of early versions have no mark.
                row = last["row"] if path.name == last["file"] and last.get("mark", mark) == mark else 0
                rows = _read_rows(path, row, limit)
            except (OSError, ValueError) as error:  # the errors of Arrow are subclasses of these
                raise InvalidRequest(f"{path} cannot be read as Parquet: {error}") from error
            if rows:
                lines, rejected = _encode_rows(rows, path.name, row)
                return ReadResult(lines, {"file": path.name, "row": row + len(rows), "mark": mark}, rejected=rejected)
        return ReadResult([], position, ended=not self._follow)


def _read_rows(path: Path, start: int, limit: int) -> list[dict[str, Any] | Exception]:
    """Return rows of a file from a number on; an exception for each row that Python cannot represent."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: list[dict[str, Any] | Exception] = []
    with pq.ParquetFile(path) as file:
        first = 0
        for group in range(file.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            if first + count > start and len(rows) < limit:
                table = file.read_row_group(group).slice(max(start - first, 0), limit - len(rows))
                schema = pa.schema([column.with_type(_to_microseconds(column.type)) for column in table.schema])
                rows += _to_python(table if schema == table.schema else table.cast(schema, safe=False))
            first += count
    return rows


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return rotation.hash_before(file, os.fstat(file.fileno()).st_size, _HASH_BYTES)


def _to_microseconds(kind: pa.DataType) -> pa.DataType:
    """Return a type with times in microseconds, because Python has no nanoseconds."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time64(kind):
        return pa.time64("us")
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(_to_microseconds(member.type)) for member in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_to_microseconds(kind.value_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_to_microseconds(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_to_microseconds(kind.key_type), _to_microseconds(kind.item_type))
    return kind


def _to_python(table: pa.Table) -> list[dict[str, Any] | Exception]:
    try:
        rows: list[dict[str, Any] | Exception] = table.to_pylist()
        return rows
    except (ValueError, OverflowError) as error:  # such as a year after 9999
        if table.num_rows == 1:
            return [error]
    half = table.num_rows // 2
    return _to_python(table.slice(0, half)) + _to_python(table.slice(half))


def _encode_rows(
    rows: Sequence[dict[str, Any] | Exception], file: str, first: int
) -> tuple[list[bytes], list[RejectedInput]]:
    lines: list[bytes] = []
    rejected: list[RejectedInput] = []
    for i, row in enumerate(rows):
        if isinstance(row, Exception):
            rejected.append(RejectedInput(i, "data", str(row), json.encode({"file": file, "row": first + i})))
            continue
        try:
            lines.append(json.encode(row))
        except json.JSONProblem:
            try:
                lines.append(json.encode(_to_json_value(row)))
            except json.JSONProblem as problem:
                rejected.append(RejectedInput(i, "data", str(problem), repr(row).encode("utf-8", "backslashreplace")))
    return lines, rejected


def _to_json_value(value: Any) -> Any:
    """Convert values that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(name): _to_json_value(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(item) for item in value]
    return value
