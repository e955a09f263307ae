"""SQL lives in .sql files, in blocks named by a comment line: ``-- name: what_it_answers``."""

from __future__ import annotations

import re
from importlib import resources

from psycopg import sql

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_MARK = re.compile(r"\{(\w+)\}")
# Lines that are all comment, and indentation: a statement of more than 4,096 characters is one that the driver reads
# anew each time.
_MARGIN = re.compile(r"^\s*(--.*\n\s*)*", re.MULTILINE)


class Statements:
    """The named statements of one .sql file.

    A statement may hold ``{placeholders}`` for the tables of one queue, which are filled in by :meth:`table`:
    their names are made of numbers alone, never of what a user typed.
    """

    def __init__(self, package: str, file: str, folder: str = "sql") -> None:
        text = resources.files(package).joinpath(folder, file).read_text(encoding="utf-8")
        parts = _NAME.split(text)
        self._statements = {
            name: _MARGIN.sub("", body).strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)
        }
        self._filled: dict[tuple[str, int, int], str] = {}

    def __getitem__(self, name: str) -> str:
        return self._statements[name]

    def __iter__(self) -> object:
        return iter(self._statements)

    def table(self, name: str, queue_id: int, segment: int) -> str:
        """The statement for the tables of one segment of one queue."""
        key = (name, queue_id, segment)
        filled = self._filled.get(key)
        if filled is None:
            if len(self._filled) > 10_000:
                self._filled.clear()
            suffix = f"{int(queue_id)}_{int(segment)}"
            filled = (
                self._statements[name]
                .replace("{chunks}", f"penstock.chunks_{suffix}")
                .replace("{ids}", f"penstock.ids_{suffix}")
                .replace("{suffix}", suffix)
                .replace("{queue}", str(int(queue_id)))
                .replace("{segment}", str(int(segment)))
            )
            self._filled[key] = filled
        return filled


def filled(text: str, **values: object) -> str:
    """A statement with its ``{marks}`` filled in, all at once: what is filled in may look like another of them."""
    return _MARK.sub(lambda mark: str(values[mark[1]]) if mark[1] in values else mark[0], text)


def quoted(*name: str) -> sql.SQL:
    """A name as a statement with parameters has it: what looks like one of them is doubled."""
    return sql.SQL(sql.Identifier(*name).as_string().replace("%", "%%"))
