"""A job's progress bar: items, rate, time left."""

import sys
from typing import Any

from tqdm import tqdm

from ops.client import Client


def wait_with_bar(client: Client, job: dict[str, Any]) -> dict[str, Any]:
    """Waits for a job's end, and shows it coming."""
    total = job["counts"]["total"]
    quiet = not sys.stderr.isatty()
    with tqdm(
        total=total,
        unit=" items",
        desc=job["model"],
        dynamic_ncols=True,
        smoothing=0,
        mininterval=5 if quiet else 0.1,
    ) as bar:

        def show(job: dict[str, Any]) -> None:
            counts = job["counts"]
            bar.update(total - counts["pending"] - counts["running"] - bar.n)

        return client.wait(job["id"], show)
