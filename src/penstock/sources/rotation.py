"""Finds files after log rotation: the file of a position, and the file after it.

A position has the inode of its file and a hash of the bytes before it. Log rotation renames a file and creates another,
or copies a file and truncates it. Both are followed, also if they happened while no process read the file.
"""

from __future__ import annotations

import contextlib
import os
import re
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

#: Suffixes of rotated files, after the name of the file or before its extension: a number, or a date.
_NUMBERED = r"[-._]\d[\dTZ.:_-]*"
_DATED = r"[-._]\d{4}-?\d\d-?\d\d[\dTZ.:_-]*"


def hash_before(file: BinaryIO, offset: int, size: int = 1024) -> str:
    """Return a hash of the beginning of a file and of the bytes before an offset."""
    length = min(size, offset)
    content = os.pread(file.fileno(), length, 0) + os.pread(file.fileno(), length, offset - length)
    return blake2b(content, digest_size=12).hexdigest()


def inode(file: BinaryIO) -> int:
    """Return the inode of an open file."""
    return os.fstat(file.fileno()).st_ino


def position_in(file: BinaryIO, offset: int) -> dict[str, Any]:
    """Return the position at an offset of a file. The modification time finds later files when the file is gone."""
    stat = os.fstat(file.fileno())
    return {"inode": stat.st_ino, "mtime": stat.st_mtime_ns, "offset": offset, "before": hash_before(file, offset)}


def is_position_in(file: BinaryIO, position: dict[str, Any]) -> bool:
    """Return whether the position is in this file, and the file was not written again since."""
    return position["inode"] == inode(file) and _has_content_before(file, position)


def open_at(path: Path, position: dict[str, Any]) -> BinaryIO | None:
    """Open the file of a position, also under a rotated name; None if it is gone."""
    # The inode alone does not identify a file: a new file can get the inode of a deleted one.
    has_hash = position["offset"] > 0 and "before" in position
    rotated = _rotated_files(path)
    same_inode = _files_with_inode(path.parent, position["inode"]) if has_hash else rotated
    # A copy has another inode.
    copies = rotated if has_hash else []
    for matches, paths in ((is_position_in, [path, *same_inode]), (_has_content_before, copies)):
        for candidate in paths:
            if (file := _open(candidate)) is not None:
                if matches(file, position):
                    return file
                file.close()
    return None


def open_next(path: Path, file: BinaryIO) -> BinaryIO | None:
    """Open the file that follows a replaced one; None if it was not replaced, or the new file is empty."""
    current = _open(path)
    if current is None:
        return None
    stat, current_stat = os.fstat(file.fileno()), os.fstat(current.fileno())
    if current_stat.st_ino == stat.st_ino:
        result = None
    else:
        result = open_first_since(path, stat.st_mtime_ns, current, file) or (current if current_stat.st_size else None)
    if result is not current:
        current.close()
    return result


def open_first_since(path: Path, mtime_ns: int, current: BinaryIO, left: BinaryIO | None = None) -> BinaryIO | None:
    """Open the oldest rotated file that was written after a time; None if there is none.

    Files that are copies of the current file, or of the file that was left, do not count.
    """
    known = {inode(file) for file in (current, left) if file is not None}
    for candidate in reversed(_rotated_files(path)):
        file = _open(candidate)
        if file is None:
            continue
        stat = os.fstat(file.fileno())
        if stat.st_size and stat.st_mtime_ns > mtime_ns and stat.st_ino not in known:
            end = {"offset": stat.st_size, "before": hash_before(file, stat.st_size)}
            is_copy_of_left = (
                left is not None and os.fstat(left.fileno()).st_size == stat.st_size and _has_content_before(left, end)
            )
            if not is_copy_of_left and not _has_content_before(current, end):
                return file
        file.close()
    return None


def _has_content_before(file: BinaryIO, position: dict[str, Any]) -> bool:
    offset = position["offset"]
    if offset > os.fstat(file.fileno()).st_size:
        return False
    # Positions of early versions have no hash.
    return "before" not in position or position["before"] == hash_before(file, offset)


def _files_with_inode(directory: Path, number: int) -> list[Path]:
    return [Path(entry.path) for entry in _list_directory(directory) if entry.inode() == number and entry.is_file()]


def _rotated_files(path: Path) -> list[Path]:
    """Return the rotated files of a file, newest first."""
    pattern = re.compile(
        f"{re.escape(path.name)}{_NUMBERED}|{re.escape(path.stem)}{_DATED}{re.escape(path.suffix)}", re.ASCII
    )
    files: list[tuple[int, Path]] = []
    for entry in _list_directory(path.parent):
        if pattern.fullmatch(entry.name):
            with contextlib.suppress(OSError):
                files.append((entry.stat().st_mtime_ns, Path(entry.path)))
    return [file for _, file in sorted(files, reverse=True)]


def _list_directory(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _open(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except OSError:
        return None
