"""A model whose load ends each worker is left out; the others are served."""

from contextlib import closing

from millrace import Client
from ops.supervisor.load_deaths import MOST_DEATHS
from tests.support.children import child_of, until
from tests.support.jobs import completed
from tests.support.models.entries import function, model
from tests.support.platforms import Platforms, spec
from tests.support.wait import eventually

MODELS = function("deadly_load:any", name="deadly") + model("after", "echo")


def test_a_model_whose_load_ends_workers_is_left_out_and_others_are_served(
    platforms: Platforms,
) -> None:
    with platforms.running(spec(MODELS)) as platform, closing(Client(platform.url)) as client:
        worker = child_of(platform)

        def failed() -> str:
            found = {one["code"]: one for one in client.get("/why")["diagnoses"]}
            return str(found["model_failed"]["words"]) if "model_failed" in found else ""

        assert f"crashed {MOST_DEATHS} times while it loaded this model" in until(platform, failed)
        assert worker.restarts == MOST_DEATHS
        job = client.jobs.submit("after", ["x"]).id
        eventually(lambda: completed(client, job))
        assert worker.restarts == MOST_DEATHS
