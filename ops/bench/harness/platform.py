"""What every benchmark shares: its platform, its input, the spread of its runs, its picture."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import click
import matplotlib

from ops.bench.harness.errors import BenchError as BenchError
from ops.supervisor.platform import Platform, running

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "millrace", "svg.fonttype": "none", "font.size": 9})

_PICTURES = Path(__file__).parents[2] / "docs"
_BESIDE_THE_REPOSITORY = Path(__file__).parents[4] / "shared"


def say(message: str) -> None:
    """Progress: standard output is for the last line."""
    click.echo(message, err=True)


@contextmanager
def own_platform(workers: int = 1, models: str = "", **changes: object) -> Iterator[Platform]:
    """A platform of its own; it and its folder are gone afterwards, on SIGTERM too. models: a
    models file; without one it serves the samples. changes: of its settings."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    say("starting a platform" + (f" of {workers} workers" if workers > 1 else ""))
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        declared = Path(folder) / "models.toml" if models else None
        if declared:
            declared.write_text(models)
        with running(Path(folder), workers, models=declared, **changes) as platform:
            yield platform


def data_file(name: str) -> Path:
    """A file of `shared/data`, beside the repository or under MILLRACE_SHARED."""
    path = Path(os.environ.get("MILLRACE_SHARED") or _BESIDE_THE_REPOSITORY) / "data" / name
    if not path.exists():
        raise BenchError(f"there is no {path}; MILLRACE_SHARED names the folder that holds data/")
    return path


def with_spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """Two figures: the median, and how far the runs lie apart as a share of it."""
    middle = median(values)
    return {name: middle, f"{name}_spread": (max(values) - min(values)) / (middle or 1)}


def save_picture(name: str, figure: Any, quick: bool = False) -> None:
    """Writes ops/docs/bench-<name>.svg: the same figures give the same bytes. quick: a picture of
    a trial, which goes elsewhere."""
    folder = Path(tempfile.gettempdir()) if quick else _PICTURES
    folder.mkdir(exist_ok=True)
    path = folder / f"bench-{name}.svg"
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    if quick:
        say(f"a trial's picture: {path}")
