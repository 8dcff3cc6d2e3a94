"""A launch that takes much longer than others hangs; what was in it gets another chance, alone."""

import json
from contextlib import closing
from pathlib import Path

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.platforms import spec
from tests.support.wait import eventually

PLATFORM = spec(
    """
[[model]]
name = "slow"
version = "1"
engine = "function"
options = { function = "tests.support.models.broken:slow" }
limits.max_batch = 1
limits.max_launch_s = 60
""",
    lease_s=3.0,
)
LAUNCHES = 20
"""Launches after which predictions are trusted."""


def run(platform: Platform, client: Client, texts: list[str]) -> list[object]:
    job = client.jobs.submit("slow", (json.dumps(text).encode() + b"\n" for text in texts))["id"]

    def ended() -> bool:
        platform.poll()
        return bool(client.jobs.get(job)["state"] == "completed")

    eventually(ended)
    return [result["output"] for result in client.jobs.results(job, wait=False)]


def test_a_launch_of_ten_times_the_usual_is_ended_and_its_item_is_not_failed(
    platform: Platform, tmp_path: Path
) -> None:
    with closing(Client(platform.url)) as client:
        usual = [f"item {n}" for n in range(LAUNCHES)]
        assert run(platform, client, usual) == usual
        assert run(platform, client, [f"long {tmp_path / 'begun'}"]) == [
            f"long {tmp_path / 'begun'}"
        ]
        died = [one["died"] for one in client.get("/workers")["data"]]
        assert died.count("hung") == 1
