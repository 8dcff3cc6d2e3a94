"""The fault suite, short: every kind of fault fires, with its proof, and nothing is lost.

`.ci/run` lets it go on for three minutes (`make chaos`).
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ops.bench.chaos.faults.table import FAULTS

NOTHING = ("lost", "duplicated", "out_of_order", "wrong", "innocent_failed", "changed")


@pytest.mark.timeout(400)
def test_a_short_rain_of_faults_loses_nothing() -> None:
    # A test's own folder may be too deep for a socket.
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        assert_nothing_is_lost(Path(folder))


def assert_nothing_is_lost(folder: Path) -> None:
    command = [sys.executable, "-m", "ops", "bench", "chaos", "--seed", "3", "--minutes", "0.1"]
    done = subprocess.run(
        [*command, "--faults", str(len(FAULTS))],
        env=os.environ | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    figures = json.loads(done.stdout.splitlines()[-1])["figures"]
    assert figures["faults"] == len(FAULTS) - figures["kinds_left_out"]
    assert figures["jobs"] > 0
    assert {name: figures[name] for name in NOTHING} == dict.fromkeys(NOTHING, 0)
    assert figures["invariant_violations"] == 0
    assert_proven(next(folder.glob("millrace-chaos-*/ledger.jsonl")))


def assert_proven(ledger: Path) -> None:
    """Every fault stands in the ledger with its proof; so do durability and what was read."""
    events = [json.loads(line) for line in ledger.read_text().splitlines()]
    fired = [event for event in events if event["event"] == "fault" and event["fired"]]
    assert all(event["proof"] for event in fired)
    durability = next(event for event in events if event["event"] == "durability")
    assert durability["fsync"] == durability["full_page_writes"] == "on"
    assert durability["synchronous_commit"] == "on"
    assert durability["unlogged tables"] == "none"
    assert {"acknowledged", "read"} <= {event["event"] for event in events}
