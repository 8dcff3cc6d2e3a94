"""Demo: embeds summaries of the standard library's functions, then answers a question."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

from jobs import clock, ids
from jobs.models.builtin_models import SAMPLES
from jobs.models.engines import extras
from millrace import Client, Item
from ops.demo import corpus
from ops.demo.corpus import DocumentedFunction
from ops.supervisor.platform import Platform, running

QUESTION = "how do I parse a JSON document"
MODEL = "minilm"

Say = Callable[[str], None]


def run(say: Say) -> dict[str, Any]:
    """Runs a platform in a temporary folder; returns the job, its launches and the best matches.

    Raises MissingExtra.
    """
    extras.require(SAMPLES.resolve(MODEL))
    since_s = clock.monotonic()
    with tempfile.TemporaryDirectory(prefix="millrace-demo-") as folder:
        say("starting PostgreSQL, Redis, the api, the keeper and a worker …")
        with running(Path(folder)) as platform:
            say(f"ready after {clock.monotonic() - since_s:.1f} s at {platform.url}\n")
            result = _show(platform, say)
        say("\nEverything is stopped. `make up` leaves it running; the API docs are then at")
        say("http://127.0.0.1:8000/docs")
    return result


def _show(platform: Platform, say: Say) -> dict[str, Any]:
    functions = corpus.collect()
    lengths = sorted(len(function.text) for function in functions)
    say(
        f"{len(functions):,} summaries of Python's library functions: half are shorter than "
        f"{lengths[len(lengths) // 2]} characters, the longest has {lengths[-1]:,}"
    )
    with closing(Client(platform.url)) as client:
        job = client.jobs.submit(MODEL, map(_item, functions))
        say(f"POST /jobs → {job['id']}")
        job = client.jobs.wait(job.id, progress=True)
        vectors = list(client.jobs.results(job.id).outputs())
        nearest = _answer(client, functions, vectors, say)
    launches = _launches(platform, job, say)
    return {"job": job, **launches, "question": QUESTION, "nearest": nearest}


def _item(function: DocumentedFunction) -> Item:
    return Item(f"{function.name}: {function.text}", custom_id=function.name)


def _answer(
    client: Client, functions: Sequence[DocumentedFunction], vectors: list[Any], say: Say
) -> list[dict[str, Any]]:
    """Finds the nearest functions: vectors have length 1, so products are cosines."""
    import numpy as np  # here, as SQLAlchemy below: the platform's processes start first

    answer = client.infer(MODEL, QUESTION)
    scores = np.array(vectors) @ np.array(answer["output"])
    say(f"\nPOST /infer: “{QUESTION}” ({answer['timing']['total_ms']:.0f} ms)")
    best = np.argsort(scores)[: -5 - 1 : -1]
    for index in best:
        summary = functions[index].text.splitlines()[0]
        say(f"  {scores[index]:.3f}  {functions[index].name:34} {summary[:60]}")
    return [{"name": functions[index].name, "cosine": float(scores[index])} for index in best]


def _launches(platform: Platform, job: dict[str, Any], say: Say) -> dict[str, float]:
    from jobs.store import db
    from jobs.store.jobs import detail

    database = db.connect(platform.settings.database_url, pool_size=1)
    with database.connect() as tx:
        job_id = ids.parse("job", job["id"]) or UUID(int=0)
        launches = detail.launch_figures(tx, job_id)
    database.dispose()
    say(
        f"\n{job['counts']['succeeded']:,} items, {job['progress']['items_per_s']:.0f} items/s, "
        f"{launches.launches} launches of {launches.mean_size:.1f} items in the mean, "
        f"padding share {launches.padding_share:.0%}"
    )
    return {
        name: float(getattr(launches, name)) for name in ("launches", "mean_size", "padding_share")
    }
