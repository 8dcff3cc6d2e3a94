"""A launch that takes much longer than others hangs; what was in it gets another chance, alone."""

from pathlib import Path

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.jobs import run
from tests.support.models.entries import function
from tests.support.pace import pace
from tests.support.platforms import spec

PLATFORM = spec(
    function("broken:slow", limits={"max_batch": 1, "max_launch_s": 60}), lease_s=3.0 * pace()
)
LAUNCHES = 20
"""Launches after which predictions are trusted."""


def test_a_launch_of_ten_times_the_usual_is_ended_and_its_item_is_not_failed(
    platform: Platform, client: Client, tmp_path: Path
) -> None:
    usual = [f"item {n}" for n in range(LAUNCHES)]
    assert [one.output for one in run(platform, client, "slow", usual)] == usual
    text = f"long {tmp_path / 'begun'}"
    assert [one.output for one in run(platform, client, "slow", [text])] == [text]
    died = [one["died"] for one in client.get("/workers")["data"]]
    assert died.count("hung") == 1
