"""Which account runs the server. PostgreSQL refuses to run as root, so for root it is another one."""

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
    """Who runs the server, when that is not this process's own user."""

    name: str
    uid: int
    gid: int


def account_for(data: Path) -> Account | None:
    """Return who has to run the server of ``data``: whoever owns it, else an account for such things."""
    if os.geteuid() != 0:
        return None
    if data.exists() and (owner := data.stat()).st_uid != 0:
        with suppress(KeyError):
            return _known(pwd.getpwuid(owner.st_uid))
        return Account(f"user {owner.st_uid}", owner.st_uid, owner.st_gid)
    for name in ("postgres", "pgserver"):
        with suppress(KeyError):
            return _known(pwd.getpwnam(name))
    if useradd := shutil.which("useradd"):
        run([useradd, "--system", "pgserver"])
        with suppress(KeyError):
            return _known(pwd.getpwnam("pgserver"))
    return _known(pwd.getpwnam("nobody"))


def check_reach(account: Account, path: Path, otherwise: str) -> None:
    """Refuse a ``path`` that the account cannot get to; ``otherwise`` is what can be done about it."""
    if _reaches(account, path):
        return
    closed = next((place for place in reversed(path.parents) if not _reaches(account, place)), path)
    raise ConfigurationError(
        f"PostgreSQL refuses to run as root, so it runs as {account.name!r}, and that account cannot enter "
        f"{closed}, which it has to for {path}: run `chmod o+x {shlex.quote(str(closed))}`, or {otherwise}, "
        "or run Penstock as an ordinary user"
    )


def _known(entry: pwd.struct_passwd) -> Account:
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _reaches(account: Account, place: Path) -> bool:
    probe = ["/bin/sh", "-c", '[ -x "$1" ]', "sh", str(place)]
    try:
        done = run(probe, cwd=Path("/"), uid=account.uid, gid=account.gid)
    except PermissionError:
        raise ConfigurationError(
            f"PostgreSQL refuses to run as root, and this root may not run it as {account.name!r}: give it "
            "CAP_SETUID and CAP_SETGID, or run Penstock as an ordinary user"
        ) from None
    return done.returncode == 0
