"""`make supply-chain`: what is installed is written down, and looked up."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ops.audit import verdict

pytestmark = pytest.mark.timeout(600)  # the tools are installed into an environment of their own

ROOT = Path(__file__).parents[3]


def indexed(name: str) -> str:
    """A name as package indexes compare them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> set[tuple[str, str]]:
    """Names and versions."""
    lines = (ROOT / "ops" / "requirements.lock").read_text().split()
    return {(indexed(name), version) for name, version in (line.split("==") for line in lines)}


@pytest.fixture(scope="module")
def sbom(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Made as an operator makes it; the first time the tools are installed."""
    path = tmp_path_factory.mktemp("sbom") / "sbom.json"
    environ = {name: value for name, value in os.environ.items() if name != "PIP_NO_INDEX"}
    command = ["make", "-s", "sbom", f"SBOM={path}"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.nightly
def test_the_bill_of_materials_names_what_the_lock_installs(sbom: dict[str, Any]) -> None:
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.6")
    assert sbom["metadata"]["component"]["name"] == "millrace"
    listed = {(indexed(part["name"]), part["version"]) for part in sbom["components"]}
    assert listed == locked()
    assert all(part["purl"].startswith("pkg:pypi/") for part in sbom["components"])


def test_the_tools_are_pinned() -> None:
    lines = (ROOT / "ops" / "tools.lock").read_text().split()
    names = [line.split("==")[0].lower().replace("_", "-") for line in lines]
    assert all("==" in line for line in lines)
    assert {"cyclonedx-bom", "pip-audit"} <= set(names)


WELL = {"name": "a", "version": "1", "vulns": []}
ILL = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}]}
UNKNOWN = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("found", "status", "said"),
    [
        ([WELL], 0, "1 packages, no known vulnerability"),
        ([WELL, ILL], 1, r"b 2: PYSEC-1 \(mended in 2.1\)"),
        ([WELL, UNKNOWN], 2, "1 of 2 packages couldn't be looked up"),
        ([ILL, UNKNOWN], 1, "PYSEC-1"),
        ([], 2, "couldn't be looked up"),
    ],
)
def test_an_audit_is_well_only_where_everything_was_looked_up(
    found: list[dict[str, Any]], status: int, said: str
) -> None:
    code, lines = verdict(found)
    assert code == status
    assert re.search(said, "\n".join(lines))
