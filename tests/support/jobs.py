"""Jobs of a platform whose processes may die meanwhile."""

from collections.abc import Iterable
from typing import Any

import httpx
from sqlalchemy import text

from jobs import ids
from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.children import until
from tests.support.platforms import database_of, transaction
from tests.support.stores.soundness import broken_invariants
from tests.support.wait import eventually


def begun(client: Client, job: str) -> bool:
    """Returns True once an item of a job has succeeded."""
    return bool(client.jobs.get(job)["counts"]["succeeded"])


def completed(client: Client, *jobs: str) -> bool:
    return all(client.jobs.get(job)["state"] == "completed" for job in jobs)


def paused(http: httpx.Client, model: str, inputs: Iterable[Any]) -> str:
    """Submits a job that rests with items to do; again, where it has ended before its pause."""
    order = {"model": model, "items": list(inputs)}

    def rests() -> Any:
        job = http.post("/jobs", json=order).raise_for_status().json()["id"]
        return http.post(f"/jobs/{job}/pause").is_success and job

    return str(eventually(rests))


def finish(platform: Platform, client: Client, job: str) -> list[Any]:
    """Waits for the end of a job, as `millrace up` does its part; returns its results."""
    until(platform, lambda: completed(client, job))
    return list(client.jobs.results(job, wait=False))


def run(platform: Platform, client: Client, model: str, inputs: Any, **terms: Any) -> list[Any]:
    """Submits a job, and returns its results once it is completed."""
    return finish(platform, client, client.jobs.submit(model, inputs, **terms).id)


def assert_outputs(results: Iterable[Any], outputs: Iterable[Any]) -> None:
    """Checks that each item has its result once, in order."""
    found = [(line["seq"], line["output"]) for line in results]
    assert found == list(enumerate(outputs))


def assert_invariants(platform: Platform) -> None:
    """Checks what `millrace check --invariants` checks."""
    with database_of(platform) as database:
        assert broken_invariants(database) == set()


def scalar_of(platform: Platform, job: str, query: str) -> Any:
    """First value of a query about a job, whose id is :job."""
    with transaction(platform) as tx:
        return tx.scalar(text(query), {"job": ids.parse("job", job)})
