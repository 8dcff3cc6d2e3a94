"""The files of ops/deploy, and what PromQL may name."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram

from jobs.telemetry.metrics.catalog import SECTIONS
from jobs.telemetry.metrics.metrics import EDGES

ROOT = Path(__file__).parents[4]
DEPLOY = ROOT / "ops" / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
RULES = PROMETHEUS / "rules.yml"

TARGET = {"instance", "job", "namespace", "pod"}
"""Labels that Prometheus itself gives to what it scrapes."""
_SUFFIXES: dict[type, tuple[str, ...]] = {
    Counter: ("_total",),
    Gauge: ("",),
    Histogram: ("_bucket", "_sum", "_count"),
}
_METRIC = re.compile(r"(?<![\w:$])(millrace[\w:]*|up)\b(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def rules() -> list[dict[str, Any]]:
    files = (RULES, PROMETHEUS / "objectives.yml")
    return [rule for file in files for group in load(file)["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


@cache
def series() -> dict[str, set[str]]:
    """What may be asked for: name → labels. Ours, what rules record, and `up`."""
    found: dict[str, set[str]] = {"up": set()}
    for metric in chain.from_iterable(SECTIONS.values()):
        [family] = metric.describe()
        for suffix in _SUFFIXES[type(metric)]:
            le = {"le"} if suffix == "_bucket" else set()
            names = metric._labelnames  # noqa: SLF001 - a metric without samples shows none
            found[family.name + suffix] = set(names) | le
    for rule in rules():
        if "record" in rule:
            found[rule["record"]] = set(rule.get("labels", {})) | left_by(rule["expr"], found)
    return found


def left_by(expression: str, known: dict[str, set[str]]) -> set[str]:
    """The labels of what an expression gives, roughly: those it groups by, or all that it has."""
    grouped = re.findall(r"\bby\s*\(([^)]*)\)", expression)
    if grouped:
        return {label for names in grouped for label in _names(names)}
    return {label for name, _ in _METRIC.findall(expression) for label in known.get(name, set())}


def wrong(expression: str) -> Iterator[str]:
    """Names and labels in this PromQL that are nobody's."""
    known, labels = series(), set(TARGET)
    for name, matchers in _METRIC.findall(expression):
        if name not in known:
            yield name
            continue
        labels |= known[name]
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', matchers)):
            if label not in known[name] | TARGET:
                yield f"{name}{{{label}}}"
        for edge in re.findall(r'\ble="([^"]*)"', matchers):
            if float(edge) not in EDGES[name.removesuffix("_bucket")]:
                yield f'{name}{{le="{edge}"}}'
    for names in _GROUPED.findall(expression):
        yield from (f"({label})" for label in _names(names) if label not in labels)


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]


def promtool(*arguments: str | Path) -> str:
    """What it says, if all is well; the test is skipped where it isn't installed."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool isn't installed: it is in Debian's package `prometheus`")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, cwd=PROMETHEUS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
