"""Generator of ops/docs/reference/metrics.md: `python -m jobs.telemetry.metrics.catalog`."""

from collections.abc import Iterator
from pathlib import Path

from jobs.telemetry.metrics import adapters as adapters  # defines its section
from jobs.telemetry.metrics import gpu as gpu  # the same
from jobs.telemetry.metrics import pools as pools  # the same
from jobs.telemetry.metrics import preparation as preparation  # the same
from jobs.telemetry.metrics import routing as routing  # the same
from jobs.telemetry.metrics.metrics import SECTIONS, Metric

PAGE = Path(__file__).parents[3] / "ops/docs/reference/metrics.md"
_PROCESSES = ("every process", "api", "worker", "keeper")
_BEGIN = "<!-- generated below this line: python -m jobs.telemetry.metrics.catalog -->\n"


def page() -> str:
    """Returns the page: its hand-written part, then a table of all metrics."""
    written, _, _ = PAGE.read_text().partition(_BEGIN)
    return written + _BEGIN + "\n".join(_tables())


def _tables() -> Iterator[str]:
    for (process, title), metrics in sorted(SECTIONS.items(), key=_place):
        heading = f"{process}: {title}" if title else process
        yield f"\n## {heading[0].upper()}{heading[1:]}\n"
        yield "| name | type | labels | meaning |"
        yield "|---|---|---|---|"
        yield from map(_row, metrics)
    yield ""


def _place(section: tuple[tuple[str, str], object]) -> tuple[int, str]:
    """Returns the place of a section, whatever was imported first."""
    process, title = section[0]
    return _PROCESSES.index(process), title


def _row(metric: Metric) -> str:
    labels = ", ".join(metric._labelnames)
    name = exposed_name(metric)
    return f"| `{name}` | {metric._type} | {labels} | {metric._documentation} |"


def exposed_name(metric: Metric) -> str:
    """Returns the name that is scraped; for histograms without `_bucket`, `_sum` and `_count`."""
    return f"{metric._name}_total" if metric._type == "counter" else metric._name


if __name__ == "__main__":
    PAGE.write_text(page())
