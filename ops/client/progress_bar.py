"""Progress bar of a job: items, rate, time left, failures."""

import sys
from typing import Any

from tqdm import tqdm

from ops.client.client import Client


def wait_with_bar(client: Client, job: dict[str, Any]) -> dict[str, Any]:
    """Waits for a job's end with a progress bar, and the rate since now."""
    quiet = not sys.stderr.isatty()
    with tqdm(
        total=job["counts"]["total"] or None,  # not known yet while its input is read
        initial=_ended(job),
        unit=" items",
        desc=job["model"],
        dynamic_ncols=True,
        smoothing=0,
        mininterval=5 if quiet else 0.1,
    ) as bar:

        def show(job: dict[str, Any]) -> None:
            """Updates the bar."""
            bar.total = job["counts"]["total"] or None
            bar.set_postfix_str(_postfix(job), refresh=False)
            bar.update(_ended(job) - bar.n)

        return client.wait(job["id"], show, lambda: bar.set_postfix_str("the api is away"))


def _ended(job: dict[str, Any]) -> int:
    counts = job["counts"]
    return int(counts["total"] - counts["pending"] - counts["running"])


def _postfix(job: dict[str, Any]) -> str:
    failed = job["counts"]["failed"]
    state = "" if job["state"] in ("queued", "running", "completed") else job["state"]
    return ", ".join(filter(None, (state, f"{failed} failed" if failed else "")))
