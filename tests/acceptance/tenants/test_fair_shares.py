"""One tenant's flood holds nobody up, in processes that run."""

from collections.abc import Iterator

import pytest

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.jobs import completed
from tests.support.keys import make_key_at
from tests.support.platforms import CLOSED
from tests.support.wait import eventually

TENANTS = ("flood", "light")
PLATFORM = CLOSED


@pytest.fixture(scope="module")
def clients(platform: Platform) -> Iterator[dict[str, Client]]:
    made = {}
    for tenant in TENANTS:
        key, _ = make_key_at(platform.settings.database_url, tenant)
        made[tenant] = Client(platform.url, api_key=key)
    yield made
    for client in made.values():
        client.close()


def test_a_small_job_ends_long_before_the_flood_that_came_first(clients: dict[str, Client]) -> None:
    flood = clients["flood"].jobs.submit("batchstring", ["f"] * 30_000).id
    eventually(lambda: clients["flood"].jobs.get(flood)["counts"]["succeeded"] > 1000)
    # All that the workers may have in hand is the flood's: seconds of it.
    light = clients["light"].jobs.submit("batchstring", ["l"] * 20).id
    eventually(lambda: completed(clients["light"], light))
    still = clients["flood"].jobs.get(flood)
    assert still["state"] == "running"
    assert still["counts"]["pending"] > 10_000
    clients["flood"].request("POST", f"/jobs/{flood}/cancel")


def test_an_urgent_job_passes_its_own_tenants_flood(clients: dict[str, Client]) -> None:
    flood = clients["light"].jobs.submit("batchstring", ["f"] * 30_000).id
    eventually(lambda: clients["light"].jobs.get(flood)["counts"]["succeeded"] > 1000)
    order = {"class": "interactive"}
    urgent = clients["light"].jobs.submit("batchstring", ["u"], **order).id
    eventually(lambda: completed(clients["light"], urgent))
    assert clients["light"].jobs.get(flood)["counts"]["pending"] > 10_000
    clients["light"].request("POST", f"/jobs/{flood}/cancel")
