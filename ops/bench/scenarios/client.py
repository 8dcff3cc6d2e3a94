"""`millrace bench client`: `client.map` beside the lean client of `millrace bench echo`, and its
memory. The client runs in a process of its own, which is measured whole."""

from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from jobs import clock
from millrace import Client
from ops.bench.harness.child_process import ChildProcess, answer_lines, child
from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import own_platform, rate, say
from ops.bench.harness.scale import Scale
from ops.bench.load.client import Client as LeanClient
from ops.bench.results.report import Report, scenario
from ops.bench.scenarios.echo import run_job

_ITEMS, _FEW_ITEMS, _MANY_ITEMS = 100_000, 10_000, 1_000_000


@scenario("client", "client_echo_ratio >= 0.8", "client_rss_growth_mb <= 20")
def run(report: Report, scale: Scale) -> None:
    """Maps `echo` over an iterator of short texts, and reads all results."""
    items = int(scale.seconds(_ITEMS))
    with (
        own_platform() as platform,
        closing(LeanClient(platform.url)) as lean,
        child("ops.bench.scenarios.client") as mapping,
    ):
        mapped = partial(_map, mapping, platform.url)
        few = mapped(_FEW_ITEMS)  # warms up
        sides = {
            "client": rate("client.map", items, lambda: float(mapped(items)["seconds"])),
            "echo": rate("echo", items, partial(run_job, lean, items)),
        }
        found = scale.in_turn(sides)
        report.spread(**{f"{name}_items_per_s": rates for name, rates in found.items()})
        report.add(client_echo_ratio=median(found["client"]) / median(found["echo"]))
        many = int(scale.seconds(_MANY_ITEMS))
        say(f"client.map: {many:,} items")
        peak_mb = mapped(many)["peak_mb"]
        report.add(client_peak_mb=peak_mb, client_rss_growth_mb=peak_mb - few["peak_mb"])


def _map(mapping: ChildProcess, url: str, items: int) -> dict[str, float]:
    """Returns the seconds of a map in the child, and its largest resident memory so far."""
    found: dict[str, float] = mapping.ask({"url": url, "items": items})
    return found


def _mapped(asked: dict[str, Any]) -> dict[str, float]:
    """Maps `echo` over so many texts. Raises BenchError where an output is wrong."""
    count, since_s = asked["items"], clock.monotonic()
    with Client(asked["url"]) as client:
        seen = 0
        for result in client.map("echo", (f"item {n}" for n in range(count)), progress=False):
            if result["seq"] != seen or result["output"] != f"item {seen}":
                raise BenchError(f"in place of the result of item {seen}: {result}")
            seen += 1
    if seen != count:
        raise BenchError(f"{seen} results of {count:,} items")
    return {"seconds": clock.monotonic() - since_s, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    """Returns the largest resident memory of this process so far.

    `getrusage` has that of the process that started it, too, which is larger.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    answer_lines(_mapped)
