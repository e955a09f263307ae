"""Backups with the programs of PostgreSQL."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.db.embedded import server as embedded
from penstock.db.embedded.os_account import account_for


def run_program(name: str, *arguments: str, **options: Any) -> None:
    subprocess.run([embedded.bundled_bin_dir() / name, *arguments], check=True, **options)


def take_base_backup(url: str, root: Path) -> None:
    """Take a backup of the server in ``root/here`` to ``root/there``, as the data of an embedded PostgreSQL."""
    parts = conninfo_to_dict(url)
    target = root / "there"
    target.mkdir(mode=0o711)
    account = account_for(root / "here" / "pg18")
    if account is not None:
        shutil.chown(target, account.uid, account.gid)
    user: dict[str, Any] = {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}
    replication = make_conninfo("", host=parts["host"], port=parts.get("port"), user=parts["user"])
    run_program("pg_basebackup", "--pgdata", str(target / "pg18"), "--checkpoint=fast", "--dbname", replication, **user)
    with psycopg.connect(url) as conn:
        assert conn.execute("SELECT current_setting('data_directory')").fetchone() == (str(root / "here" / "pg18"),)
