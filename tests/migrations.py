"""The migrations of this package, with one more that no release has."""

from __future__ import annotations

import shutil
from pathlib import Path

from penstock.db import migrate

#: Takes the strongest lock on tables that every push, pop and query uses.
ALTER_BUSY_TABLES = """
ALTER TABLE penstock.partitions ADD COLUMN added_later integer;
ALTER TABLE penstock.queries ADD COLUMN added_later integer;
"""


def copy_with_one_more(directory: Path, sql: str = ALTER_BUSY_TABLES) -> int:
    """Copy the migrations to ``directory``, add one and return its version."""
    shutil.copytree(str(migrate.MIGRATIONS_DIR), directory, dirs_exist_ok=True)
    version = migrate.load_migrations()[-1].version + 1
    (directory / f"{version:04}_added_by_a_test.sql").write_text(sql, encoding="utf-8")
    return version
