"""`make audit`: known vulnerabilities of the packages in the lock file.

Runs in the tools' own environment (ops/tools.lock), so it imports nothing of ours. Exit status:
0: all packages were looked up, none has any; 1: some have; 2: unknown.
"""

import json
import subprocess
import sys
from typing import Any

_WITHIN_S = 600


def main(lock: str) -> int:
    """Audits a lock file; returns the exit status."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", lock, "--no-deps"]
    command += ["--disable-pip", "--format", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN_S)
    except subprocess.TimeoutExpired:
        print(f"audit: the vulnerability service didn't answer in {_WITHIN_S} s", file=sys.stderr)
        return 2
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = (done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1]
        print(f"audit: nothing was audited: {last}", file=sys.stderr)
        return 2
    status, lines = verdict(packages)
    print("\n".join(lines), file=sys.stderr if status else sys.stdout)
    return status


def verdict(packages: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """Exit status and lines. A package that couldn't be looked up is a failure, too."""
    vulnerable = [package for package in packages if package.get("vulns")]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    lines = [
        f"audit: {package['name']} {package['version']}: {vuln['id']}"
        f" (mended in {', '.join(vuln.get('fix_versions') or ['no release yet'])})"
        for package in vulnerable
        for vuln in package["vulns"]
    ]
    if skipped or not packages:
        some = ", ".join(skipped[:5]) + (" …" if len(skipped) > 5 else "")
        lines.append(
            f"audit: {len(skipped)} of {len(packages)} packages couldn't be looked up: the "
            f"vulnerability service can't be reached from here, or doesn't know them: {some}"
        )
    if vulnerable:
        return 1, lines
    if skipped or not packages:
        return 2, lines
    return 0, [f"audit: {len(packages)} packages, no known vulnerability"]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
