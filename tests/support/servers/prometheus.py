"""A real Prometheus that scrapes a platform every second."""

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from ops.processes.ports import free_port
from ops.supervisor.platform import Platform
from tests.support.processes import spawned
from tests.support.wait import eventually

MISSING = "prometheus isn't installed: it is in Debian's package of that name"
_JOBS = ("millrace-api", "millrace-keeper", "millrace-worker")
_FOR = re.compile(r"\bfor: (\d+)([smh])")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def installed() -> bool:
    return shutil.which("prometheus") is not None


@contextmanager
def scraping(
    platform: Platform, folder: Path, rules: Sequence[Path], key: str = ""
) -> Iterator[httpx.Client]:
    """Starts one, and yields its HTTP API once all processes were scraped; key: for the api."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    scraped: list[dict[str, Any]] = [
        {"job_name": job, "static_configs": [{"targets": [url.split("/")[2]]}]}
        for job, url in zip(_JOBS, platform.metrics, strict=True)
    ]
    if key:
        scraped[0]["authorization"] = {"credentials": key}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": list(map(str, rules)),
        "scrape_configs": scraped,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    arguments = {"config.file": folder / "prometheus.yml", "storage.tsdb.path": folder / "data",
                 "web.listen-address": f"127.0.0.1:{port}"}  # fmt: skip
    command = ["prometheus", *(f"--{name}={value}" for name, value in arguments.items())]
    with (
        (folder / "log").open("w") as log,
        spawned(command, stdout=log, stderr=log),
        httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1") as client,
    ):
        eventually(lambda: _all_up(client))
        yield client


def ask(prometheus: httpx.Client, expression: str) -> list[dict[str, Any]]:
    answer = prometheus.get("/query", params={"query": expression}).json()
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def firing(prometheus: httpx.Client) -> dict[str, dict[str, Any]]:
    alerts = prometheus.get("/alerts").raise_for_status().json()["data"]["alerts"]
    return {one["labels"]["alertname"]: one for one in alerts if one["state"] == "firing"}


def hurried(rules: Path, times: int, changes: dict[str, str]) -> str:
    """The rules of an installation that is so many times as impatient; changes: of expressions
    that have a time in them. Raises ValueError where one of them isn't there."""
    text = rules.read_text()
    for old, new in changes.items():
        if text.count(old) != 1:
            raise ValueError(f"{old} stands {text.count(old)} times in {rules.name}")
        text = text.replace(old, new)
    return _FOR.sub(
        lambda found: f"for: {int(found[1]) * _SECONDS[found[2]] * 1000 // times}ms", text
    )


def _all_up(client: httpx.Client) -> bool:
    try:
        return len(ask(client, "up == 1")) == len(_JOBS)
    except (httpx.TransportError, ValueError):  # it starts
        return False
