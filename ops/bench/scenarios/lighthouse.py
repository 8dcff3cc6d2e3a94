"""`millrace bench lighthouse`: Lighthouse's scores of the dashboard's pages: phone and desktop.

A database that has long been in use, and a job of 400 items that has run. A score is the median of
several runs. Lighthouse comes from npm, and drives Debian's Chromium.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from millrace import Client
from ops.bench.harness.errors import BenchError
from ops.bench.harness.fill_database import fill
from ops.bench.harness.platform import database_of, own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report, scenario

_FOLDER = Path(__file__).parents[1] / "lighthouse"
_CATEGORIES = ("performance", "accessibility", "best-practices")
_FORMS = {"phone": ("--form-factor=mobile",), "desktop": ("--preset=desktop",)}
_PAGES = ("overview", "jobs", "job")
_WITHIN_S = 300
_RUNS = 5
_TRIES = 3  # of a run
_NO_TRACE = "Please run Lighthouse again"
"""Part of its error where Chromium's trace lacks a part, as happens now and then."""

Scores = dict[str, float]


@scenario(
    "lighthouse",
    *(
        f"{page}_{form}_{category.replace('-', '_')} >= 95"
        for page in _PAGES
        for form in _FORMS
        for category in _CATEGORIES
    ),
)
def run(report: Report, scale: Scale) -> None:
    """Runs Lighthouse on each page, in each form."""
    command = _installed()
    with own_platform() as platform:
        with database_of(platform) as database:
            fill(database, 2_000)
        with Client(platform.url) as client:
            texts = (f"how do I parse the document {n}" for n in range(400))
            job = client.jobs.submit("minilm", texts, name="documents", labels={"team": "search"})
            client.jobs.wait(job.id)
        paths = dict(zip(_PAGES, ("", "/jobs", f"/jobs/{job.id}"), strict=True))
        for page, path in paths.items():
            for form, options in _FORMS.items():
                say(f"{page}, {form}")
                arguments = [*command, f"{platform.url}/dashboard{path}", *options]
                runs = [_scores(arguments) for _ in range(1 if scale.quick else _RUNS)]
                report.add(f"{page}_{form}_", **dict(_medians(runs)))


def _installed() -> list[str]:
    """Command of Lighthouse, installed where it isn't yet. Raises BenchError without a browser."""
    browser = shutil.which("chromium")
    if not (browser and shutil.which("npm")):
        raise BenchError("lighthouse takes chromium and npm (Debian's packages of these names)")
    script = _FOLDER / "node_modules" / "lighthouse" / "cli" / "index.js"
    if not script.exists():
        say("installing Lighthouse")
        _finish(["npm", "ci", "--no-audit", "--no-fund"])
    return ["node", str(script)]


def _scores(arguments: list[str]) -> Scores:
    """Scores of one run, 0 to 100, by category."""
    flags = [
        "--quiet", "--output=json", f"--only-categories={','.join(_CATEGORIES)}",
        "--chrome-flags=--headless=new --no-sandbox",
    ]  # fmt: skip
    found: dict[str, Any] = json.loads(_try([*arguments, *flags]))
    for name, audit in found["audits"].items():
        if audit["scoreDisplayMode"] in ("binary", "numeric") and (audit["score"] or 0) < 0.9:
            say(f"    {name} {audit['score']}: {audit.get('displayValue', audit['title'])}")
    return {name: 100 * (each["score"] or 0) for name, each in found["categories"].items()}


def _try(command: list[str]) -> str:
    for _ in range(_TRIES - 1):
        try:
            return _finish(command)
        except BenchError as error:
            if _NO_TRACE not in str(error):
                raise
            say("    no trace; once more")
    return _finish(command)


def _finish(command: list[str]) -> str:
    """Runs a command; returns what it printed. Raises BenchError where it fails."""
    environ = {**os.environ, "CHROME_PATH": shutil.which("chromium") or ""}
    done = subprocess.run(
        command, cwd=_FOLDER, env=environ, capture_output=True, text=True, timeout=_WITHIN_S,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise BenchError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[:2000]}")
    return done.stdout


def _medians(runs: list[Scores]) -> Iterator[tuple[str, float]]:
    for category in _CATEGORIES:
        yield category.replace("-", "_"), median(scores[category] for scores in runs)
