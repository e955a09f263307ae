"""`make audit` fails where a package is known to have a hole, and where nobody could be asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT

#: In place of pip-audit, which needs a network: it returns a given result for every lock file.
PIP_AUDIT = """
import os, sys
print(os.environ["ANSWER"])
sys.exit(1)
"""
FINE = {"name": "anyio", "version": "4", "vulns": []}
BAD = {"name": "anyio", "version": "4", "vulns": [{"id": "PYSEC-1", "fix_versions": ["5"]}]}
UNKNOWN = {"name": "anyio", "skip_reason": "not found"}


def audited(folder: Path, answer: str) -> subprocess.CompletedProcess[str]:
    (folder / "pip_audit.py").write_text(PIP_AUDIT)
    environment = {**os.environ, "PYTHONPATH": str(folder), "ANSWER": answer}
    script = [sys.executable, str(ROOT / "scripts/audit.py")]
    return subprocess.run(script, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    ("found", "code", "says"),
    [
        ([FINE], 0, "No known vulnerabilities in "),
        ([FINE, BAD], 1, "requirements/base.txt: anyio 4: PYSEC-1 (fixed by 5)"),
        ([FINE, UNKNOWN], 2, "NOT AUDITED"),
        ([UNKNOWN], 2, "NOTHING WAS AUDITED"),
        (None, 2, "benchmarks/peers/duckdb.txt: NOT AUDITED"),
    ],
    ids=["none", "vulnerable", "some unknown", "all unknown", "no response"],
)
def test_vulnerabilities_and_failed_lookups_have_different_exit_codes(
    found: list[Any] | None, code: int, says: str, tmp_path: Path
) -> None:
    done = audited(tmp_path, "" if found is None else json.dumps({"dependencies": found}))
    assert (done.returncode, says in done.stdout) == (code, True), done.stdout + done.stderr


def test_every_lock_file_is_looked_up(tmp_path: Path) -> None:
    printed = audited(tmp_path, json.dumps({"dependencies": [FINE]})).stdout
    files = [*ROOT.glob("[a-z]*/*.txt"), *ROOT.glob("[a-z]*/*/*.txt")]
    locks = [path for path in files if "--hash=sha256:" in path.read_text()]
    assert locks
    assert all(path.relative_to(ROOT).as_posix() in printed for path in locks)
