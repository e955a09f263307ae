"""The pages of the documentation and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w-]*)")
_BORDER = re.compile(r"(?<!\\)\|")
_COMMENT = re.compile(r"\s*<!-- (?P<kind>not run|partly run|queries|file): (?P<text>.+) -->\s*")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, which begins at ``line``, with the text of the comment before it."""

    page: Path
    line: int
    language: str
    text: str
    #: The reason why the block does not run.
    not_run: str | None = None
    #: The reason why some of its commands do not run.
    partly_run: str | None = None
    #: The queries that it needs.
    queries: str = ""
    #: The file that the reader saves the block as.
    file: str | None = None

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    """The page as it is called in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path, *languages: str) -> list[Block]:
    """The page's blocks in these languages, or in any, in order."""
    return [block for block in _blocks(page) if not languages or block.language in languages]


def prose_of(page: Path) -> Iterator[tuple[int, str]]:
    """The lines outside of blocks, numbered."""
    closing: str | None = None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if closing is not None:
            closing = None if line.strip() == closing else closing
        elif fence is not None:
            closing = fence["ticks"]
        else:
            yield number, line


def rows_of(page: Path) -> list[list[str]]:
    """The rows of all tables, heads and rules too, marks of code removed."""
    return [
        [cell.strip().replace("`", "") for cell in _BORDER.split(line.strip())[1:-1]]
        for _, line in prose_of(page)
        if line.startswith("|")
    ]


def table_of(page: Path, first_header: str) -> dict[str, list[str]]:
    """The table whose first column has that header: the cells of each row by its first."""
    rows = rows_of(page)
    (start,) = [i for i, row in enumerate(rows) if row[0] == first_header]
    table: dict[str, list[str]] = {}
    for row in rows[start + 2 :]:
        if len(row) != len(rows[start]):
            break
        table[row[0]] = row[1:]
    return table


def _blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if fence is None:
            number += 1
            continue
        comment = _COMMENT.fullmatch(lines[number - 1] if number else "")
        values = {} if comment is None else {comment["kind"].replace(" ", "_"): comment["text"]}
        start = number + 1
        end = next(i for i in range(start, len(lines)) if lines[i].strip() == fence["ticks"])
        text = "".join(f"{line.removeprefix(fence['indent'])}\n" for line in lines[start:end])
        yield Block(page, start + 1, fence["language"], text, **values)
        number = end + 1
