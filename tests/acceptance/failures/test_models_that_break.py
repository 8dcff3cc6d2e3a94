"""Models whose load or launch hangs or ends its worker, and models that don't all fit."""

from contextlib import closing
from pathlib import Path

import pytest

from millrace import Client
from ops.supervisor.load_deaths import MOST_DEATHS
from tests.support.children import child_of, until
from tests.support.jobs import completed, run
from tests.support.models.entries import function, model
from tests.support.pace import pace
from tests.support.platforms import Platforms, spec
from tests.support.wait import eventually

LAUNCHES = 20
"""Launches after which predictions are trusted."""


def test_a_model_whose_load_ends_workers_is_left_out_and_others_are_served(
    platforms: Platforms,
) -> None:
    models = function("deadly_load:any", name="deadly") + model("after", "echo")
    with platforms.running(spec(models)) as platform, closing(Client(platform.url)) as client:
        worker = child_of(platform)

        def failed() -> str:
            found = {one["code"]: one for one in client.get("/why")["diagnoses"]}
            return str(found["model_failed"]["words"]) if "model_failed" in found else ""

        assert f"crashed {MOST_DEATHS} times while it loaded this model" in until(platform, failed)
        assert worker.restarts == MOST_DEATHS
        job = client.jobs.submit("after", ["x"]).id
        eventually(lambda: completed(client, job))
        assert worker.restarts == MOST_DEATHS


@pytest.mark.nightly
def test_a_load_that_hangs_is_ended_and_tried_again(
    platforms: Platforms, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = function("stuck:same", name="stuck", limits={"max_load_s": 3})
    with platforms.running(spec(stuck)) as platform:
        assert child_of(platform).restarts == 1
        assert "hangs in loading stuck@1" in caplog.text


def test_a_launch_of_ten_times_the_usual_is_ended_and_its_item_is_not_failed(
    platforms: Platforms, tmp_path: Path
) -> None:
    slow = function("broken:slow", limits={"max_batch": 1, "max_launch_s": 60})
    with (
        platforms.running(spec(slow, lease_s=3.0 * pace())) as platform,
        closing(Client(platform.url)) as client,
    ):
        usual = [f"item {n}" for n in range(LAUNCHES)]
        assert [one.output for one in run(platform, client, "slow", usual)] == usual
        text = f"long {tmp_path / 'begun'}"
        assert [one.output for one in run(platform, client, "slow", [text])] == [text]
        died = [one["died"] for one in client.get("/workers")["data"]]
        assert died.count("hung") == 1


@pytest.mark.nightly
def test_jobs_of_more_models_than_fit_all_end(platforms: Platforms) -> None:
    names = ("a", "b", "c")
    asked = spec("".join(model(name, "echo", memory_mb=400) for name in names), memory_mb=500)
    with (
        platforms.running(asked, min_stay_s=0.5) as platform,
        closing(Client(platform.url)) as client,
    ):
        jobs = [client.jobs.submit(name, ["x"] * 5000).id for name in names]
        assert {client.jobs.wait(job)["state"] for job in jobs} == {"completed"}
        states = [one["states"] for one in client.request("GET", "/models")["data"]]
        assert sum(state.get("ready", 0) for state in states) <= 1
