"""Two tenants in one launch: neither is told of the other."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from ops.supervisor.platform import Platform
from tests.support.clients import http_of
from tests.support.platforms import CHATTING
from tests.support.wait import eventually

PLATFORM = CHATTING


@pytest.fixture(scope="module")
def clients(platform: Platform) -> Iterator[dict[str, httpx.Client]]:
    roles = {"alice": "tenant", "bob": "tenant", "house": "operator"}
    made = {name: http_of(platform, f"shared-{name}", role=role) for name, role in roles.items()}
    yield made
    for client in made.values():
        client.close()


def test_the_size_of_a_batch_is_that_of_ones_own_part(clients: dict[str, httpx.Client]) -> None:
    """batchstring takes 100 ms a launch: those who come together leave together."""

    def call(who: str) -> dict[str, Any]:
        def timing() -> dict[str, Any] | None:
            """A busy machine may predict that a call is late, and refuse it."""
            found = clients[who].post("/infer", json={"model": "batchstring", "input": "x"})
            return None if found.status_code == 429 else found.raise_for_status().json()["timing"]

        return eventually(timing) or {}

    with ThreadPoolExecutor(32) as threads:
        others = [threads.submit(call, "bob") for _ in range(31)]
        mine = [threads.submit(call, "alice") for _ in range(1)]
        assert max(future.result()["batch_size"] for future in others) > 1
        assert [future.result()["batch_size"] for future in mine] == [1]
        assert {future.result()["padding"] for future in mine} == {0.0}


def test_an_item_tells_of_its_launch_what_is_its_own(clients: dict[str, httpx.Client]) -> None:
    alice = clients["alice"]
    job = alice.post("/jobs", json={"model": "batchstring", "items": ["x", "y"]}).json()["id"]
    eventually(lambda: alice.get(f"/jobs/{job}").json()["state"] == "completed")
    item = f"/jobs/{job}/items/0"
    launch = alice.get(item).json()["launch"]
    assert launch.keys() == {"worker", "engine_ms", "started_at"}
    whole = clients["house"].get(item).json()["launch"]
    assert whole.keys() >= {"id", "items", "calls", "units", "padded_units", "reason"}
    assert launch.items() <= whole.items()
