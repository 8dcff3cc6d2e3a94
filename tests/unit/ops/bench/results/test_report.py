"""Lines of a benchmark: one a part, one at the end, also where it is cut off."""

import json
import signal
import subprocess
import sys

import pytest

from ops.bench.harness.errors import BenchError
from ops.bench.harness.scale import QUICK
from ops.bench.results.parts import run_parts
from ops.bench.results.report import Report

WAITS = """
import signal
from contextlib import contextmanager
from ops.bench.harness import platform
from ops.bench.results.report import scenario

@contextmanager
def running(*_, **__):
    yield

@scenario("waits", "first >= 1", "second >= 1")
def run(report, scale):
    platform.running = running  # what it starts isn't needed here
    with platform.own_platform():
        report.add(first=2)
        signal.pause()

run()
"""


@pytest.mark.heavy
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_benchmark_that_is_cut_off_tells_what_it_has(number: signal.Signals) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-c", WAITS]
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stderr
        assert process.stderr.readline() == "starting a platform\n"
        assert "first = 2" in process.stderr.readline()
        process.send_signal(number)
        said, _ = process.communicate()
    line = json.loads(said)
    assert (line["cut_off"], line["figures"]) == (True, {"first": 2})
    assert [row["holds"] for row in line["asked"]] == [True, False]
    assert process.returncode == (143 if number == signal.SIGTERM else -signal.SIGINT)


def test_a_part_tells_its_own_figures(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("some", ["b >= 1"])
    for n, part in enumerate("ab"):
        report.add(**{part: n})
        report.end_part(part)
    report.finish()
    *parts, line = map(json.loads, capsys.readouterr().out.splitlines())
    assert [(one["part"], one["figures"]) for one in parts] == [("a", {"a": 0}), ("b", {"b": 1})]
    assert line["figures"] == {"a": 0, "b": 1}
    assert "cut_off" not in line


def test_a_part_that_there_is_not_is_refused() -> None:
    with pytest.raises(BenchError, match="there is no part x; there are: a, b"):
        run_parts("some", "ops.bench.some", ("a", "b"), ["x"], QUICK)
