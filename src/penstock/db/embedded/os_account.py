"""The operating system account of the server. PostgreSQL does not run as root, so root uses another account."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.core.errors import ConfigurationError
from penstock.db.embedded.subprocess import run


@dataclass(frozen=True, slots=True)
class Account:
    """An account that is not the user of this process."""

    name: str
    uid: int
    gid: int


def account_for(data: Path) -> Account | None:
    """Return the account that runs the server: the owner of ``data``, else a system account. None if not root."""
    if os.geteuid() != 0:
        return None
    if data.exists() and (owner := data.stat()).st_uid != 0:
        with suppress(KeyError):
            return _from_passwd(pwd.getpwuid(owner.st_uid))
        return Account(f"user {owner.st_uid}", owner.st_uid, owner.st_gid)
    for name in ("postgres", "pgserver"):
        with suppress(KeyError):
            return _from_passwd(pwd.getpwnam(name))
    if useradd := shutil.which("useradd"):
        run([useradd, "--system", "pgserver"])
        with suppress(KeyError):
            return _from_passwd(pwd.getpwnam("pgserver"))
    return _from_passwd(pwd.getpwnam("nobody"))


def check_access(account: Account, path: Path, remedy: str) -> None:
    """Raise ConfigurationError with ``remedy`` if the account cannot reach ``path``."""
    if _can_reach(account, path):
        return
    closed = next((parent for parent in reversed(path.parents) if not _can_reach(account, parent)), path)
    raise ConfigurationError(
        f"PostgreSQL does not run as root, so it runs as {account.name!r}, and that account cannot enter {closed} to "
        f"reach {path}: run `chmod o+x {shlex.quote(str(closed))}`, or {remedy}, or run Penstock as an ordinary user"
    )


def _from_passwd(entry: pwd.struct_passwd) -> Account:
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _can_reach(account: Account, path: Path) -> bool:
    command = ["/bin/sh", "-c", '[ -x "$1" ]', "sh", str(path)]
    try:
        completed = run(command, cwd=Path("/"), uid=account.uid, gid=account.gid)
    except PermissionError:
        raise ConfigurationError(
            f"PostgreSQL does not run as root, and this root may not run it as {account.name!r}: give it CAP_SETUID "
            "and CAP_SETGID, or run Penstock as an ordinary user"
        ) from None
    return completed.returncode == 0
