"""`python -m tests.nightly`: everything that can be tested here, part by part, and a table of it.

A part that fails holds up no other; the exit status is that of the whole.
"""

import re
import subprocess
import sys
import time
from dataclasses import dataclass

_PYTEST = [sys.executable, "-m", "pytest", "--dist", "loadfile"]
_COUNTED = re.compile(r"^(?=.*\bin [\d.]+s)(?:=+ )?(.*?) in [\d.]+s", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """One command, in the folder of the checkout."""

    name: str
    command: list[str]


PARTS = [
    Part("check", ["make", "check"]),
    Part("unit", [*_PYTEST, "-n", "2", "tests/unit"]),
    Part("integration", [*_PYTEST, "-n", "auto", "tests/integration", "tests/budgets"]),
    Part("acceptance", [*_PYTEST, "-n", "auto", "tests/acceptance", "tests/packaging"]),
    Part("browser", [*_PYTEST, "-n", "2", "tests/browser"]),
    Part("other people's tools", ["make", "compat"]),
    Part("image", ["make", "image"]),
    Part("chaos", ["make", "chaos"]),
    Part("benchmarks", ["make", "bench-quick"]),
]


def main() -> None:
    """Runs all parts, prints their table, and exits with 1 if one failed."""
    rows = [run(part) for part in PARTS]
    print(f"\n{'part':22}{'tests':44}{'minutes':>8}  result")
    for part, (said, seconds, status) in zip(PARTS, rows, strict=True):
        result = "passed" if status == 0 else f"failed ({status})"
        print(f"{part.name:22}{said:44}{seconds / 60:8.1f}  {result}")
    sys.exit(any(status for _, _, status in rows))


def run(part: Part) -> tuple[str, float, int]:
    """Runs a part, whose output is shown; returns what pytest counted, seconds, exit status."""
    print(f"\n== {part.name}: {' '.join(part.command)}", flush=True)
    began_s, lines = time.monotonic(), list[str]()
    with subprocess.Popen(
        part.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    counted = _COUNTED.findall("".join(lines[-20:]))
    return counted[-1] if counted else "-", time.monotonic() - began_s, process.returncode


if __name__ == "__main__":
    main()
