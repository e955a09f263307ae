"""Check every pinned package for known vulnerabilities with pip-audit.

Exits with 1 if a package has one, and with 2 if some packages could not be checked, because the service is unreachable
or does not know them. It needs a network, so neither `make check` nor CI runs it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
#: Lock files of Penstock, its tests and documentation, and of the systems it is benchmarked against.
LOCKS = ("requirements/*.txt", "benchmarks/peers/*.txt")


def audit(file: Path) -> list[dict[str, Any]] | str:
    """Return the report of each package of a lock file, or the reason why there is none."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--progress-spinner=off"]
    try:
        done = subprocess.run(
            [*command, "--format=json", "--requirement", str(file)], capture_output=True, text=True, timeout=600
        )
    except subprocess.TimeoutExpired:
        return "no response within ten minutes"
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = done.stderr.strip().splitlines()[-1:] or ["pip-audit printed nothing"]
        # Cut before the host name.
        return last[0].partition(":")[0]
    return found


def main() -> int:
    """Audit all lock files."""
    bad: list[str] = []
    looked_up = left_out = 0
    is_whole = True
    for file in sorted(path for pattern in LOCKS for path in ROOT.glob(pattern)):
        name = file.relative_to(ROOT).as_posix()
        found = audit(file)
        if isinstance(found, str):
            print(f"{name}: NOT AUDITED: the vulnerability service cannot be reached ({found})")
            is_whole = False
            continue
        skipped = [package for package in found if "skip_reason" in package]
        looked_up += len(found) - len(skipped)
        left_out += len(skipped)
        for package in found:
            for vulnerability in package.get("vulns", ()):
                fixed = ", ".join(vulnerability["fix_versions"]) or "no version yet"
                bad.append(f"{name}: {package['name']} {package['version']}: {vulnerability['id']} (fixed by {fixed})")
        print(f"{name}: {len(found) - len(skipped)} packages looked up, {len(skipped)} not known to the service")
    for line in bad:
        print(line)
    if not looked_up:
        print("NOTHING WAS AUDITED: the vulnerability service is unreachable from this machine.")
    elif not bad:
        print(f"No known vulnerabilities in {looked_up} packages." + (f" {left_out} NOT AUDITED." if left_out else ""))
    if bad:
        return 1
    return 0 if is_whole and not left_out else 2


if __name__ == "__main__":
    sys.exit(main())
