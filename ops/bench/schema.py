"""`millrace bench schema`: requests that schemathesis makes up from /openapi.json, every check,
with a valid key and with none, against a platform of its own.

A violation is an answer that isn't as documented; a hang, one that takes longer than the patience.
"""

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import httpx
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import load_all_checks
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import positive_data_acceptance

from ops.bench.harness import own_platform, say
from ops.bench.report import Report
from ops.up import Platform

ASKED = {
    "cases_with_key": ">= 10000",
    "cases_without_key": ">= 10000",
    "server_errors": "<= 0",
    "violations": "<= 0",
    "hangs": "<= 0",
}
_PATIENCE_S = 20.0
_LEAST = 10
_THREADS = 4

# OpenAPI can't say that the query must name the model when the body is NDJSON.
_NOT_CHECKED = {"POST /jobs": [positive_data_acceptance]}


@schemathesis.serializer("application/x-ndjson")
def _ndjson(context: Any, value: Any) -> bytes:
    return json.dumps(value).encode()


@dataclass(slots=True)
class Tally:
    """What came of the cases; shared by threads."""

    cases: int = 0
    server_errors: int = 0
    hangs: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)


def run(cases: int, seed_: int) -> None:
    """cases: with a key, and as many without."""
    load_all_checks()
    report, since_s = Report("schema", ASKED), time.monotonic()
    with own_platform() as platform:
        key = _admin_key(platform)
        with_key, without = Tally(), Tally()
        _explore(platform, {"Authorization": f"Bearer {key}"}, cases, seed_, with_key)
        _explore(platform, {}, cases, seed_, without)
        alive = httpx.get(f"{platform.url}/livez", timeout=_PATIENCE_S).status_code == 200
    for name, tally in (("with", with_key), ("without", without)):
        say(f"{name} a key: {dict(sorted(tally.statuses.items()))}")
        for what, times in tally.violations.most_common():
            say(f"  {times} times: {what}")
    both = (with_key, without)
    report.add(
        cases_with_key=with_key.cases,
        cases_without_key=without.cases,
        server_errors=sum(tally.server_errors for tally in both),
        violations=sum(tally.violations.total() for tally in both),
        hangs=sum(tally.hangs for tally in both) + (not alive),
        seconds=time.monotonic() - since_s,
    )
    report.finish()


def _admin_key(platform: Platform) -> str:
    """The first key, which ends that everybody may do everything; waits until that is known."""
    wanted = {"tenant": "default", "role": "admin"}
    key: str = httpx.post(f"{platform.url}/keys", json=wanted).raise_for_status().json()["key"]
    while httpx.get(f"{platform.url}/jobs").status_code != 401:
        time.sleep(0.1)
    return key


def _explore(
    platform: Platform, headers: dict[str, str], cases: int, seed_: int, tally: Tally
) -> None:
    document = schemathesis.openapi.from_url(f"{platform.url}/openapi.json")
    operations = [found.ok() for found in document.get_all_operations()]
    with ThreadPoolExecutor(_THREADS) as pool:
        while tally.cases < cases and operations:
            share = max(_LEAST, -(-(cases - tally.cases) // len(operations)))
            say(f"{len(operations)} operations, {share} cases of each")
            counts = pool.map(lambda op: _try(op, headers, share, seed_, tally), operations)  # noqa: B023
            # Of some there are few to make up: the others take their part.
            operations = [op for op, made in zip(operations, counts, strict=True) if made >= share]
            seed_ += 1


def _try(operation: Any, headers: dict[str, str], cases: int, seed_: int, tally: Tally) -> int:
    """Returns how many there were."""
    made = 0
    not_checked = _NOT_CHECKED.get(operation.label, [])

    @seed(seed_)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def each(case: Any) -> None:
        nonlocal made
        made += 1
        _one(case, session, headers, not_checked, tally)

    with requests.Session() as session:
        each()
    return made


def _one(
    case: Any,
    session: requests.Session,
    headers: dict[str, str],
    not_checked: list[Any],
    tally: Tally,
) -> None:
    label = case.operation.label
    try:
        response = case.call(session=session, headers=headers, timeout=_PATIENCE_S)
    except requests.Timeout:
        with tally.lock:
            tally.cases += 1
            tally.hangs += 1
            tally.violations[f"{label}: no answer in {_PATIENCE_S:g} s"] += 1
        return
    found: list[str] = []
    try:
        case.validate_response(
            response,
            headers=headers,
            excluded_checks=not_checked,
            transport_kwargs={"session": session, "headers": dict(headers), "timeout": _PATIENCE_S},
        )
    except FailureGroup as group:
        found = [f"{label}: {type(one).__name__}: {one}"[:400] for one in group.exceptions]
    with tally.lock:
        tally.cases += 1
        tally.statuses[response.status_code] += 1
        tally.server_errors += response.status_code >= 500
        tally.violations.update(found)
