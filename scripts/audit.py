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
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = done.stderr.strip().splitlines()[-1:] or ["pip-audit printed nothing"]
        # Cut before the host name.
        return last[0].partition(":")[0]
    return packages


def main() -> int:
    """Audit all lock files."""
    vulnerabilities: list[str] = []
    audited = unknown = 0
    is_complete = True
    for file in sorted(path for pattern in LOCKS for path in ROOT.glob(pattern)):
        name = file.relative_to(ROOT).as_posix()
        report = audit(file)
        if isinstance(report, str):
            print(f"{name}: NOT AUDITED: the vulnerability service cannot be reached ({report})")
            is_complete = False
            continue
        skipped = [package for package in report if "skip_reason" in package]
        audited += len(report) - len(skipped)
        unknown += len(skipped)
        for package in report:
            for vulnerability in package.get("vulns", ()):
                fixed = ", ".join(vulnerability["fix_versions"]) or "no version yet"
                where = f"{name}: {package['name']} {package['version']}"
                vulnerabilities.append(f"{where}: {vulnerability['id']} (fixed by {fixed})")
        print(f"{name}: {len(report) - len(skipped)} packages audited, {len(skipped)} not known to the service")
    for line in vulnerabilities:
        print(line)
    if not audited:
        print("NOTHING WAS AUDITED: the vulnerability service is unreachable from this machine.")
    elif not vulnerabilities:
        print(f"No known vulnerabilities in {audited} packages." + (f" {unknown} NOT AUDITED." if unknown else ""))
    if vulnerabilities:
        return 1
    return 0 if is_complete and not unknown else 2


if __name__ == "__main__":
    sys.exit(main())
