"""Writes ops/docs/metrics.md from the metrics: `python -m jobs.telemetry.metrics.catalog`
writes it anew."""

from collections.abc import Iterator
from pathlib import Path

from jobs.telemetry.metrics.metrics import SECTIONS, Metric

PAGE = Path(__file__).parents[3] / "ops/docs/metrics.md"
_BEGIN = "<!-- from here on: python -m jobs.telemetry.metrics.catalog -->\n"


def page() -> str:
    """The page as it should be: what people wrote, then every metric."""
    written, _, _ = PAGE.read_text().partition(_BEGIN)
    return written + _BEGIN + "\n".join(_tables())


def _tables() -> Iterator[str]:
    for (whose, what), found in SECTIONS.items():
        title = f"{whose}: {what}" if what else whose
        yield f"\n## {title[0].upper()}{title[1:]}\n"
        yield "| name | type | labels | meaning |"
        yield "|---|---|---|---|"
        yield from map(_row, found)
    yield ""


def _row(metric: Metric) -> str:
    labels = ", ".join(metric._labelnames)
    name = name_of(metric)
    return f"| `{name}` | {metric._type} | {labels} | {metric._documentation} |"


def name_of(metric: Metric) -> str:
    """As it is scraped: of a histogram, without `_bucket`, `_sum` and `_count`."""
    return f"{metric._name}_total" if metric._type == "counter" else metric._name


if __name__ == "__main__":
    PAGE.write_text(page())
