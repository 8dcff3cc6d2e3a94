"""A model whose load ends each worker is left out; the others are served."""

from contextlib import closing

from millrace import Client
from ops.supervisor.load_deaths import MOST_DEATHS
from tests.support.platforms import Platforms, spec
from tests.support.wait import eventually

MODELS = """
[[model]]
name = "deadly"
version = "1"
engine = "function"
options = { function = "tests.support.models.deadly_load:any" }

[[model]]
name = "after"
version = "1"
engine = "echo"
"""


def test_a_model_whose_load_ends_workers_is_left_out_and_others_are_served(
    platforms: Platforms,
) -> None:
    with platforms.running(spec(MODELS)) as platform, closing(Client(platform.url)) as client:
        [worker] = [one for one in platform.supervisor.children if one.name == "worker-1"]

        def failed() -> str:
            platform.poll()  # as `millrace up` does: a worker that ended is started again
            found = {one["code"]: one for one in client.get("/why")["diagnoses"]}
            return str(found["model_failed"]["words"]) if "model_failed" in found else ""

        assert f"crashed {MOST_DEATHS} times while it loaded this model" in eventually(failed)
        assert worker.restarts == MOST_DEATHS
        job = client.jobs.submit("after", [b'"x"\n'])["id"]
        eventually(lambda: client.jobs.get(job)["state"] == "completed")
        assert worker.restarts == MOST_DEATHS
