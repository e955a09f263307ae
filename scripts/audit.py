"""Look up every pinned package among the known vulnerabilities, by pip-audit.

Ends with 1 if one of them has any, and with 2 if some could not be looked up, because the service cannot be reached or
does not know them: an audit that did not take place is not one that found nothing. It needs a network, so neither
`make check` nor CI runs it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
#: What Penstock, its tests and its documentation are installed from, and what it is measured beside.
LOCKS = ("requirements/*.txt", "benchmarks/peers/*.txt")


def audit(file: Path) -> list[dict[str, Any]] | str:
    """What is known of each package of a lock file; a text, if that could not be found out."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--progress-spinner=off"]
    try:
        done = subprocess.run(
            [*command, "--format=json", "--requirement", str(file)], capture_output=True, text=True, timeout=600
        )
    except subprocess.TimeoutExpired:
        return "there was no answer within ten minutes"
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = done.stderr.strip().splitlines()[-1:] or ["pip-audit said nothing"]
        # The name of a host is nobody's business here.
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
                fixed = ", ".join(vulnerability["fix_versions"]) or "nothing yet"
                bad.append(f"{name}: {package['name']} {package['version']}: {vulnerability['id']} (fixed by {fixed})")
        print(f"{name}: {len(found) - len(skipped)} packages looked up, {len(skipped)} not known to the service")
    for line in bad:
        print(line)
    if not looked_up:
        print("NOTHING WAS AUDITED: no service for vulnerabilities can be reached from here; run it where one can.")
    elif not bad:
        print(f"No known vulnerabilities in {looked_up} packages." + (f" {left_out} NOT AUDITED." if left_out else ""))
    if bad:
        return 1
    return 0 if is_whole and not left_out else 2


if __name__ == "__main__":
    sys.exit(main())
