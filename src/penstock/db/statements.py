"""SQL statements from .sql files, in blocks that start with a line ``-- name: statement_name``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources

from psycopg import sql

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
# Comment lines and indentation. psycopg parses a statement of more than 4,096 characters on every execution.
_MARGIN = re.compile(r"^\s*(--.*\n\s*)*", re.MULTILINE)


class Statements:
    """The named statements of one .sql file.

    A statement may contain ``{placeholders}`` for the tables of one queue, which :meth:`table` fills in. Their names
    consist of numbers, never of user input.
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
        """Return the statement for the tables of one segment of one queue."""
        key = (name, queue_id, segment)
        statement = self._filled.get(key)
        if statement is None:
            if len(self._filled) > 10_000:
                self._filled.clear()
            suffix = f"{int(queue_id)}_{int(segment)}"
            statement = self._filled[key] = fill_placeholders(
                self._statements[name],
                chunks=f"penstock.chunks_{suffix}",
                ids=f"penstock.ids_{suffix}",
                suffix=suffix,
                queue=int(queue_id),
                segment=int(segment),
            )
        return statement


def fill_placeholders(text: str, **values: object) -> str:
    """Fill in the ``{placeholders}`` of a statement, all at once: a value may look like a placeholder itself."""
    return _PLACEHOLDER.sub(lambda match: str(values[match[1]]) if match[1] in values else match[0], text)


def fill_names(text: str, names: Mapping[str, str]) -> str:
    """Fill in names of roles or databases: ``{name}`` as an identifier, and ``{name_text}`` as a string."""
    identifiers = {name: sql.Identifier(value).as_string() for name, value in names.items()}
    literals = {f"{name}_text": sql.Literal(value).as_string().strip() for name, value in names.items()}
    return fill_placeholders(text, **identifiers, **literals)


def quote_identifier(*name: str) -> sql.SQL:
    """Quote an identifier for a statement with parameters, where ``%`` has to be doubled."""
    return sql.SQL(sql.Identifier(*name).as_string().replace("%", "%%"))
