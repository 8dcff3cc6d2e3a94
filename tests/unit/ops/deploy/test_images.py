"""The Dockerfile and the compose file, without a daemon: linted, and true to each other and to the
product. Neither is built or started here."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import each
from tests.support.command_line import SETTINGS, is_command
from tests.unit.ops.deploy.kit import DEPLOY, ROOT, load

DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE = load(DEPLOY / "compose.yml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: one for name, one in SERVICES.items() if one["image"].startswith("millrace:")}


@pytest.mark.heavy
def test_the_dockerfile_is_tidy() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_image_has_what_the_lock_names_of_packages_that_there_are_and_no_root() -> None:
    text = DOCKERFILE.read_text()
    installs = re.findall(r"^RUN (pip install .*)", text, re.MULTILINE)
    assert all("-c ops/requirements.lock" in one or "--no-deps" in one for one in installs)
    assert re.findall(r"^USER (.*)", text, re.MULTILINE)[-1] == "10001:10001"
    assert re.search(r"^ARG BASE=python:3\.11\.\d+-", text, re.MULTILINE)
    assert text.count("\nFROM ${BASE}") == 2
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().split("\n")
    kept = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert [name for name in kept if not (ROOT / name).exists()] == []
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    found = {name.rstrip("*") for name in tools["setuptools"]["packages"]["find"]["include"]}
    assert found - {"millrace"} <= set(kept), "that one lies in ops"


def test_a_service_is_pinned_and_waits_for_and_mounts_what_is_there() -> None:
    for name, case in each(SERVICES):
        with case:
            service = SERVICES[name]
            image, _, tag = service["image"].partition(":")
            assert image == "millrace" or re.match(r"v?\d+\.\d+\.\d+|\d+\.\d+-", tag)
            for other, wait in service.get("depends_on", {}).items():
                if wait["condition"] == "service_healthy":
                    assert "healthcheck" in SERVICES[other]
                else:
                    assert wait["condition"] == "service_completed_successfully"
                    assert SERVICES[other]["restart"].startswith("on-failure")
            for mount in service.get("volumes", ()):
                source = mount.split(":")[0]
                named = source in COMPOSE["volumes"]
                assert (DEPLOY / source).is_dir() if source.startswith(".") else named
            # Ports are open to this machine alone.
            assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_what_is_ours_is_configured_as_it_can_be_and_has_its_metrics_where_prometheus_looks() -> (
    None
):
    for name, case in each(OURS):
        with case:
            ours = OURS[name]
            assert is_command(ours["command"])
            assert ours["environment"].keys() <= SETTINGS
            assert (ours["read_only"], ours["cap_drop"]) == (True, ["ALL"])
            assert (DEPLOY / ours["build"]["context"]).resolve() == ROOT
    scraped = load(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]
    for job in scraped:
        [found] = job["dns_sd_configs"]
        for name in found["names"]:
            assert int(OURS[name]["environment"]["MILLRACE_METRICS_PORT"]) == found["port"]
            assert job["job_name"] == f"millrace-{name}"
