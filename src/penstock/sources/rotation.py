"""Which file a position is in, and which comes after it: files are renamed, copied, cut and written anew meanwhile.

A file is known by its number and by what stands before the position. Log rotation either renames it and begins another,
or copies it and cuts it; both are followed, also when they happened while nobody was looking.
"""

from __future__ import annotations

import contextlib
import os
import re
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

#: Names that rotation gives, after the name of the file or before its ending: a number, or a day and perhaps more.
_NUMBERED = r"[-._]\d[\dTZ.:_-]*"
_DATED = r"[-._]\d{4}-?\d\d-?\d\d[\dTZ.:_-]*"


def mark(file: BinaryIO, offset: int, size: int = 1024) -> str:
    """What stands at the beginning of a file and right before a place in it, in short."""
    some = min(size, offset)
    held = os.pread(file.fileno(), some, 0) + os.pread(file.fileno(), some, offset - some)
    return blake2b(held, digest_size=12).hexdigest()


def inode(file: BinaryIO) -> int:
    """The number of an open file."""
    return os.fstat(file.fileno()).st_ino


def place(file: BinaryIO, offset: int) -> dict[str, Any]:
    """A position: which file, where in it, and when that was written to, for when it is gone."""
    stat = os.fstat(file.fileno())
    return {"inode": stat.st_ino, "mtime": stat.st_mtime_ns, "offset": offset, "before": mark(file, offset)}


def is_in(file: BinaryIO, position: dict[str, Any]) -> bool:
    """Whether a file is the one that a position was in, and not written anew since."""
    return position["inode"] == inode(file) and _holds(file, position)


def find(path: Path, position: dict[str, Any]) -> BinaryIO | None:
    """The file that a position is in, opened, wherever rotation has put it; None if it is gone."""
    # By its number alone a file is not known: when one is gone, the next may get it.
    is_known = position["offset"] > 0 and "before" in position
    rotated = _rotated(path)
    named = _of_number(path.parent, position["inode"]) if is_known else rotated
    # Copied before it was cut, it has another number.
    copies = rotated if is_known else []
    for tells, some in ((is_in, [path, *named]), (_holds, copies)):
        for each in some:
            if (file := _opened(each)) is not None:
                if tells(file, position):
                    return file
                file.close()
    return None


def after(path: Path, file: BinaryIO) -> BinaryIO | None:
    """The file that was begun after this one, opened, if this one has been replaced and the other holds something."""
    now = _opened(path)
    if now is None:
        return None
    here, there = os.fstat(file.fileno()), os.fstat(now.fileno())
    if there.st_ino != here.st_ino:
        found = since(path, here.st_mtime_ns, now, file) or (now if there.st_size else None)
    else:
        found = None
    if found is not now:
        now.close()
    return found


def since(path: Path, moment: int, now: BinaryIO, left: BinaryIO | None = None) -> BinaryIO | None:
    """The first of those rotated away that were written to after a moment, opened: what comes before the one there now.

    Others keep copies too: of the one there now, and of the one that is left.
    """
    known = {inode(each) for each in (now, left) if each is not None}
    for each in reversed(_rotated(path)):
        file = _opened(each)
        if file is None:
            continue
        stat = os.fstat(file.fileno())
        if stat.st_size and stat.st_mtime_ns > moment and stat.st_ino not in known:
            whole = {"offset": stat.st_size, "before": mark(file, stat.st_size)}
            is_copy = left is not None and os.fstat(left.fileno()).st_size == stat.st_size and _holds(left, whole)
            if not is_copy and not _holds(now, whole):
                return file
        file.close()
    return None


def _holds(file: BinaryIO, position: dict[str, Any]) -> bool:
    offset = position["offset"]
    if offset > os.fstat(file.fileno()).st_size:
        return False
    # What an earlier version stored says no more than where it was.
    return "before" not in position or position["before"] == mark(file, offset)


def _of_number(directory: Path, number: int) -> list[Path]:
    return [Path(entry.path) for entry in _entries(directory) if entry.inode() == number and entry.is_file()]


def _rotated(path: Path) -> list[Path]:
    """What was rotated away of a file, the newest first."""
    name = re.compile(
        f"{re.escape(path.name)}{_NUMBERED}|{re.escape(path.stem)}{_DATED}{re.escape(path.suffix)}", re.ASCII
    )
    found = []
    for entry in _entries(path.parent):
        if name.fullmatch(entry.name):
            with contextlib.suppress(OSError):
                found.append((entry.stat().st_mtime_ns, Path(entry.path)))
    return [each for _, each in sorted(found, reverse=True)]


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except OSError:
        return None
