"""`millrace bench cli`: time of the command line's answers, processes started anew.

The modules' byte code is cached, as it is after a first run.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from statistics import median

from jobs import clock
from ops.bench.harness.errors import BenchError
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report, scenario

_TIMES = 40
_COMPLETE = {"_MILLRACE_COMPLETE": "bash_complete", "COMP_CWORD": "1"}


@scenario("cli", "version_ms <= 150", "help_ms <= 150", "tab_ms <= 150", "jobs_ms <= 300")
def run(report: Report, scale: Scale) -> None:
    """Runs each command often, in turn, and takes the median of its times."""
    times = int(scale.seconds(_TIMES))
    with own_platform(models=models_file(sample("echo"))) as platform:
        environ = {"MILLRACE_URL": platform.url}
        commands: dict[str, tuple[list[str], Mapping[str, str]]] = {
            "version_ms": (["--version"], {}),
            "help_ms": (["--help"], {}),
            "command_help_ms": (["models", "--help"], {}),
            "tab_ms": ([], {**_COMPLETE, "COMP_WORDS": "millrace s"}),
            "subcommand_tab_ms": (
                [],
                {**_COMPLETE, "COMP_WORDS": "millrace scale s", "COMP_CWORD": "2"},
            ),
            "jobs_ms": (["jobs"], environ),
            "models_ms": (["models"], environ),
        }
        say(f"each of {len(commands)} commands {times} times")
        found: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(times + 1):
            for name, (arguments, more) in commands.items():
                took_ms = _run_ms(arguments, more)
                if turn:  # the first writes the byte code
                    found[name].append(took_ms)
        report.add(**{name: median(each) for name, each in found.items()})


def _run_ms(arguments: list[str], more: Mapping[str, str]) -> float:
    """Returns the duration of a command, from its start to its end. Raises BenchError."""
    command = [sys.executable, "-m", "ops", *arguments]
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    since_s = clock.monotonic()
    done = subprocess.run(command, env={**environ, **more}, stdout=subprocess.PIPE, check=False)
    took_ms = (clock.monotonic() - since_s) * 1000
    if done.returncode or (more.keys() >= _COMPLETE.keys() and not done.stdout):
        raise BenchError(f"{' '.join(command)} ended with {done.returncode}")
    return took_ms
