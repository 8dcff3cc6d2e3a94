"""The CPU of processes is theirs, with that of their children."""

import os
import subprocess
import sys
import time

import pytest

from jobs import clock
from ops.bench.probes.cpu import Meter

pytestmark = pytest.mark.heavy

BURN_S = 0.3
BURN = f"import time\nwhile time.process_time() < {BURN_S}: pass"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '''{BURN}''']); input()"


def test_children_count_while_they_run_and_once_they_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE) as process:
        meter = Meter({"tree": [process.pid]}, {"alone": process.pid})
        deadline_s = clock.monotonic() + 30
        while meter.read()["tree"] < BURN_S and clock.monotonic() < deadline_s:
            os.sched_yield()
        used = meter.read()
        process.communicate(b"\n")
    assert used["tree"] >= BURN_S
    assert used["alone"] < used["tree"] - BURN_S / 2


def test_what_this_process_burns_is_measured() -> None:
    meter = Meter({}, {"this": os.getpid()})
    before_s, until_s = meter.read()["this"], time.process_time() + BURN_S
    while time.process_time() < until_s:
        pass
    assert abs(meter.read()["this"] - before_s - BURN_S) < BURN_S / 2


def test_a_process_that_is_gone_has_used_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert Meter({"gone": [process.pid]}, {}).read() == {"gone": 0.0}
