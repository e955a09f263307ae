"""PostgreSQL's own programs that make backups and put them back."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.db.embedded import server as embedded
from penstock.db.embedded.os_account import account_for


def program(name: str, *arguments: str, **options: Any) -> None:
    subprocess.run([embedded.bundled_bin_dir() / name, *arguments], check=True, **options)


def base_backup(url: str, root: Path) -> None:
    """What `pg_basebackup` makes of a running server, laid where an embedded one looks for it."""
    parts = conninfo_to_dict(url)
    there = root / "there"
    there.mkdir(mode=0o711)
    account = account_for(root / "here" / "pg18")
    if account is not None:
        shutil.chown(there, account.uid, account.gid)
    who: dict[str, Any] = {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}
    replication = make_conninfo("", host=parts["host"], port=parts.get("port"), user=parts["user"])
    program("pg_basebackup", "--pgdata", str(there / "pg18"), "--checkpoint=fast", "--dbname", replication, **who)
    with psycopg.connect(url) as conn:
        assert conn.execute("SELECT current_setting('data_directory')").fetchone() == (str(root / "here" / "pg18"),)
