"""The worked example of the page on capacity: its files, its commands, its figures."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.clients.test_cookbook import as_shown

pytestmark = pytest.mark.nightly

PAGE = Path(__file__).parents[3] / "ops" / "docs" / "how-to" / "operations" / "capacity.md"
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_figures_are_what_the_commands_print(tmp_path: Path) -> None:
    blocks = _FENCED.findall(PAGE.read_text())
    for _, text in blocks:
        if name := re.match(r"# ([\w-]+\.\w+)\n", text):
            (tmp_path / name[1]).write_text(text)
    commands = "set -e\n" + "".join(text for language, text in blocks if language == "bash")
    shown = "".join(text for language, text in blocks if language == "text")
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", commands], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert as_shown(shown).fullmatch(done.stdout), done.stdout
