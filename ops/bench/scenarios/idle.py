"""`millrace bench idle`: CPU and memory of a platform with nothing to do, and time of its start.

Each start is `millrace up` itself, on a home whose database is there.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from jobs import clock
from jobs.settings import Settings
from ops.bench.harness.child_process import started
from ops.bench.harness.errors import BenchError
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.probes.cpu import Meter
from ops.bench.probes.memory import pss_mb, rss_mb
from ops.bench.results.report import Report, scenario
from ops.processes.ports import free_port

_SETTLE_S, _IDLE_S = 20.0, 60.0  # after the start; the window of the CPU
_UP = [sys.executable, "-m", "ops", "up", "--json"]
_SHOWN_AS = {
    "fork_servers": ("fork_server",),
    "api": ("-m api",),
    "keeper": ("-m workers.keeper",),
    "worker": ("[celeryd",),
    "postgres": ("postgres",),
    "redis": ("redis-server", "valkey-server"),
}
"""Words in the command lines of processes."""


@dataclass(frozen=True, slots=True)
class _Running:
    """`millrace up` that is ready."""

    url: str
    supervisor: int  #: pid
    ready_s: float  #: from its start


@scenario(
    "idle",
    "idle_cpu_share <= 0.02",
    "ready_s <= 2",
    "api_mb <= 80",
    "keeper_mb <= 60",
    "worker_mb <= 120",
    "worker_minilm_mb <= 350",
)
def run(report: Report, scale: Scale) -> None:
    """Starts the built-in models for their CPU and memory, then `echo` alone, for a worker without
    weights. `ready_s` is of the first, in which loading MiniLM is most of the time."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        echo = Path(folder) / "echo.toml"
        echo.write_text(models_file(sample("echo")))
        with _up(Path(folder)):
            say("the database is made")
        ready = scale.in_turn(
            {
                "ready_": lambda _: _ready_s(Path(folder)),
                "ready_echo_": lambda _: _ready_s(Path(folder), echo),
            }
        )
        for name, seconds in ready.items():
            report.spread(name, s=seconds)
        with _up(Path(folder)) as platform:
            clock.sleep(scale.seconds(_SETTLE_S))
            _cpu(report, platform, scale.seconds(_IDLE_S))
            _memory(report, platform)
        with _up(Path(folder), echo) as platform:
            clock.sleep(scale.seconds(_SETTLE_S))
            report.add(worker_mb=pss_mb(_find(platform.supervisor)["worker"][0]))


@contextmanager
def _up(home: Path, models: Path | None = None) -> Iterator[_Running]:
    """Runs `millrace up` until it is left."""
    settings = Settings(home=home, port=free_port(), models=models)
    since_s = clock.monotonic()
    env = os.environ | settings.environment()
    with started(_UP, stdout=subprocess.PIPE, env=env) as process:
        ready_s = _await_ready(process) - since_s
        say(f"ready after {ready_s:.2f} s")
        yield _Running(settings.url, process.pid, ready_s)
        process.send_signal(signal.SIGTERM)
        process.wait()


def _ready_s(home: Path, models: Path | None = None) -> float:
    with _up(home, models) as platform:
        return platform.ready_s


def _await_ready(process: "subprocess.Popen[str]") -> float:
    """Returns the time of the line that says so; others are of the log."""
    assert process.stdout
    for line in process.stdout:
        if line.startswith("{") and json.loads(line).get("ready"):
            return clock.monotonic()
    raise BenchError(f"`millrace up` ended with {process.wait()}; see above")


def _find(supervisor: int) -> dict[str, list[int]]:
    """Returns the pids of a platform's processes by name, without those that they started."""
    found: dict[str, list[int]] = {"supervisor": [supervisor]}
    for process in psutil.Process(supervisor).children(recursive=True):
        line = " ".join(process.cmdline())
        name = next(
            (name for name, words in _SHOWN_AS.items() if any(w in line for w in words)), ""
        )
        if name and process.ppid() not in found.get(name, ()):
            found.setdefault(name, []).append(process.pid)
    return found


def _cpu(report: Report, platform: _Running, seconds: float) -> None:
    """Adds the share of a core by process, its children included."""
    trees = _find(platform.supervisor)
    alone = {"supervisor": trees.pop("supervisor")[0]}
    alone |= {f"fork_server_{n}": pid for n, pid in enumerate(trees.pop("fork_servers", []), 1)}
    meter = Meter(trees, alone)
    before, since_s = meter.read(), clock.monotonic()
    clock.sleep(seconds)
    after, took_s = meter.read(), clock.monotonic() - since_s
    shares = {name: (after[name] - before[name]) / took_s for name in after}
    report.add(**{f"{name}_cpu_share": share for name, share in shares.items()})
    report.add(idle_cpu_share=sum(shares.values()))


def _memory(report: Report, platform: _Running) -> None:
    """Adds the memory of each process, and of all with the processes that they have started: the
    proportional set size (_mb), and the resident size (_rss_mb), in which each process counts the
    pages that it shares with its fork server."""
    pids = _find(platform.supervisor)
    for name in ("supervisor", "api", "keeper"):
        report.add(f"{name}_", mb=pss_mb(pids[name][0]), rss_mb=rss_mb(pids[name][0]))
    [worker], weights_mb = pids["worker"], _weights_mb(platform.url)
    report.add("worker_minilm_", mb=pss_mb(worker) - weights_mb, rss_mb=rss_mb(worker) - weights_mb)
    everyone = psutil.Process(platform.supervisor).children(recursive=True)
    report.add(
        weights_mb=weights_mb,
        fork_servers_mb=sum(pss_mb(pid) for pid in pids.get("fork_servers", [])),
        all_mb=pss_mb(platform.supervisor) + sum(pss_mb(each.pid) for each in everyone),
    )


def _weights_mb(url: str) -> float:
    """Memory of all models of the worker, as it reports it."""
    [worker] = [one for one in httpx.get(f"{url}/workers").json()["data"] if not one["ended_at"]]
    return float(sum(model["memory_mb"] or 0 for model in worker["models"]))
