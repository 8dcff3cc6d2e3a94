"""A models file of one's own, and a function that misbehaves."""

from contextlib import closing

import httpx
import pytest

from millrace import Client
from tests.support.children import child_of
from tests.support.models.entries import function, model
from tests.support.platforms import Platforms, spec

pytestmark = pytest.mark.nightly

MODELS = function(
    "broken:moody", version="2", target_ms=100, limits={"max_batch": 64, "slice_items": 50}
)

STUCK = function("stuck:same", name="stuck", limits={"max_load_s": 3})


def test_what_an_engine_breaks_on_fails_alone_and_the_others_succeed(platforms: Platforms) -> None:
    texts = [f"t{n}" for n in range(200)]
    bad = {3: "raise", 60: "nan", 61: "nul", 120: "surrogate", 121: "object", 199: "short"}
    for seq, text in bad.items():
        texts[seq] = text
    with platforms.running(spec(MODELS)) as platform, closing(Client(platform.url)) as client:
        job = client.jobs.submit("moody", texts)
        done = client.jobs.wait(job["id"])
        counts = done["counts"]
        assert (done["state"], counts["succeeded"], counts["failed"]) == ("completed", 194, 6)
        found = list(client.jobs.results(job["id"], wait=False))
        failed = {line["seq"]: line["error"]["code"] for line in found if line["error"]}
        assert failed == {
            3: "engine_error", 60: "invalid_output", 61: "invalid_output",
            120: "invalid_output", 121: "invalid_output", 199: "invalid_output",
        }  # fmt: skip
        assert all(
            line["output"] == texts[line["seq"]].upper() for line in found if not line["error"]
        )
        body = {"model": "moody", "input": "nan"}
        answer = httpx.post(f"{platform.url}/infer", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (500, "invalid_output")
        assert httpx.get(f"{platform.url}/models").json()["data"][0]["version"] == "2"


def test_a_load_that_hangs_is_ended_and_tried_again(
    platforms: Platforms, caplog: pytest.LogCaptureFixture
) -> None:
    with platforms.running(spec(STUCK)) as platform:
        assert child_of(platform).restarts == 1
        assert "hangs in loading stuck@1" in caplog.text


def test_jobs_of_more_models_than_fit_all_end(platforms: Platforms) -> None:
    names = ("a", "b", "c")
    models = "".join(model(name, "echo", memory_mb=400) for name in names)
    with (
        platforms.running(spec(models, memory_mb=500, min_stay_s=0.5)) as platform,
        closing(Client(platform.url)) as client,
    ):
        jobs = [client.jobs.submit(name, ["x"] * 5000).id for name in names]
        assert {client.jobs.wait(job)["state"] for job in jobs} == {"completed"}
        states = [one["states"] for one in client.request("GET", "/models")["data"]]
        assert sum(state.get("ready", 0) for state in states) <= 1
