"""ops/step.sh: a step of an installation is one line, and all its output where it fails."""

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

STEP = Path(__file__).parents[3] / "ops" / "step.sh"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "new" / "install.log"


def step(log: Path, name: str, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(STEP), str(log), name, command], capture_output=True, text=True, check=False
    )


def test_a_step_is_one_line_with_its_seconds_and_all_its_output_where_it_fails(log: Path) -> None:
    done = step(log, "installing (1/2) torch", "echo WARNING; echo ERROR >&2")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"installing \(1/2\) torch … \d+ s\n", done.stdout)
    assert "WARNING\nERROR\n" in log.read_text()
    step(log, "first", "echo of the first")
    done = step(log, "second", "echo Collecting; echo no such thing >&2; exit 3")
    assert done.returncode == 3
    assert done.stdout.startswith("second … failed after ")
    assert done.stderr == (
        f"Collecting\nno such thing\nsecond: exit status 3; {log} has this output\n"
    )
    assert "of the first" in log.read_text()
    done = step(log, "x", "no-such-command-here --please")  # fails as in a shell
    assert done.returncode == 127
    assert "no-such-command-here" in done.stderr
