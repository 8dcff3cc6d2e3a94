"""A model that takes a second an item, with the default limits: nobody measured it before."""

import os
import signal
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.jobs import begun, completed, finish
from tests.support.models.entries import model
from tests.support.pace import lease_s
from tests.support.platforms import Platforms, spec
from tests.support.wait import eventually, gone, pause, slowdown

pytestmark = pytest.mark.nightly
ITEMS = 24
CODE = """
import os, time
from pathlib import Path

RUNS = Path(__file__).with_name("runs")


def predict(batch):
    for item in batch:
        with RUNS.open("a") as runs:
            runs.write(f"{item} {os.getpid()} {len(batch)}\\n")
        time.sleep(1)
    return batch
"""
HELD = """
        while not Path(__file__).with_name("go").exists():
            time.sleep(0.01)
"""
STILL_S = 5.0
"""Time that any process may get no core for."""
ENTRY = model("slow", "python", file="slow.py")
SLOW = spec(ENTRY, workers=2, files={"slow.py": CODE}, lease_s=lease_s(3.0))


def runs(platform: Platform) -> list[tuple[str, int, int]]:
    """Returns item, process and size of the launch of every run that began."""
    assert platform.settings.models is not None
    path = Path(platform.settings.models).with_name("runs")
    lines = path.read_text().splitlines() if path.exists() else []
    return [(item, int(pid), int(size)) for item, pid, size in map(str.split, lines)]


def submit(client: Client) -> str:
    """Submits the job once both workers serve the model."""
    eventually(lambda: client.get("/models")["data"][0]["workers"] == 2)
    return client.jobs.submit("slow", [str(n) for n in range(ITEMS)]).id


@pytest.mark.timeout(400)
def test_two_workers_share_a_job_of_slow_items_and_show_progress(platforms: Platforms) -> None:
    with platforms.running(SLOW) as platform, closing(Client(platform.url)) as client:
        since_s = time.monotonic()
        job = submit(client)
        eventually(lambda: begun(client, job))
        shown_s = time.monotonic() - since_s
        eventually(lambda: completed(client, job))
        took_s = time.monotonic() - since_s
        shares = Counter(pid for _, pid, _ in runs(platform))
        print(f"shown after {shown_s:.1f} s, ended after {took_s:.1f} s, shares {shares}")
        assert len(shares) == 2
        assert max(shares.values()) <= ITEMS / 2 + 2 * slowdown() + STILL_S / 2
        assert max(size for *_, size in runs(platform)) <= 3, "while sizes are tried"
        assert shown_s <= 3 * slowdown() + STILL_S
        assert took_s <= 13.5 * slowdown() + STILL_S  # one worker alone takes 24


@pytest.mark.timeout(400)
def test_a_kill_repeats_at_most_what_was_in_the_launch(platforms: Platforms) -> None:
    with platforms.running(SLOW) as platform, closing(Client(platform.url)) as client:
        job = submit(client)
        eventually(lambda: client.jobs.get(job)["counts"]["succeeded"] >= 6)
        _, killed, _ = runs(platform)[-1]
        os.kill(killed, signal.SIGKILL)

        finish(platform, client, job)
        began = Counter(item for item, *_ in runs(platform))
        lost = {item for item, pid, _ in runs(platform) if pid == killed and began[item] > 1}
        launch = max(size for _, pid, size in runs(platform) if pid == killed)
        print(f"repeated {lost} of launches of {launch}")
        assert len(began) == ITEMS
        assert len(lost) <= 2 * launch, "more than its launch and the one being recorded"


@pytest.mark.parametrize(("drain_s", "times"), [(0.3, 2), (60.0, 1)], ids=["short", "long"])
def test_a_launch_has_as_long_to_end_as_drain_s_says(
    platforms: Platforms, drain_s: float, times: int
) -> None:
    files = {"slow.py": CODE.replace("        time.sleep(1)\n", HELD)}
    patient = spec(ENTRY, files=files, lease_s=lease_s(3.0), drain_s=drain_s)
    with platforms.running(patient) as platform, closing(Client(platform.url)) as client:
        job = client.jobs.submit("slow", ["0"]).id
        eventually(lambda: runs(platform))
        told = runs(platform)[0][1]
        os.kill(told, signal.SIGTERM)
        if times > 1:
            eventually(lambda: gone(told))
        else:
            pause(1.0)  # the worker waits, and longer than a short time
        platform.settings.models.with_name("go").touch()
        finish(platform, client, job)
        assert len(runs(platform)) == times
