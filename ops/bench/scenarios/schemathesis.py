"""`millrace bench schema`: requests that schemathesis makes up from /openapi.json, every check,
with a valid key and with none, against a platform of its own.

A violation is an answer that isn't as documented; a hang, one that takes longer than the patience.
"""

import json
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from typing import Any
from unittest import SkipTest

import httpx
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import positive_data_acceptance

from ops.bench.harness.platform import own_platform, say
from ops.bench.results.report import Report
from ops.supervisor.platform import Platform

ASKED = {
    "cases_with_key": ">= 10000",
    "cases_without_key": ">= 10000",
    "server_errors": "<= 0",
    "violations": "<= 0",
    "hangs": "<= 0",
}
_PATIENCE_S = 20.0
_LEAST = 10
_OUR_FAULT = set(range(500, 600)) - {504}

# OpenAPI can't say that the query must name the model when the body is NDJSON, which parameters a
# model takes, which scopes a role has, that no two limits are for the same model and key, where a
# webhook may go, nor that a batch is made of a file that is there; a deadline of a millisecond
# passes, which is a 504 as documented.
_NOT_CHECKED = {
    "POST /jobs": [positive_data_acceptance],
    "POST /keys": [positive_data_acceptance],
    "PUT /tenants/{tenant}/limits": [positive_data_acceptance],
    "PUT /webhooks/endpoint": [positive_data_acceptance],
    "POST /v1/batches": [positive_data_acceptance],
    "POST /infer": [positive_data_acceptance, not_a_server_error],
}


@schemathesis.serializer("application/x-ndjson")
def _ndjson(context: Any, value: Any) -> bytes:
    return json.dumps(value).encode()


@dataclass(slots=True)
class Tally:
    """What came of the cases."""

    cases: int = 0
    server_errors: int = 0
    hangs: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)

    def __iadd__(self, other: "Tally") -> "Tally":
        self.cases += other.cases
        self.server_errors += other.server_errors
        self.hangs += other.hangs
        self.violations += other.violations
        self.statuses += other.statuses
        return self


def run(cases: int, seed_: int) -> None:
    """cases: with a key, and as many without."""
    report, since_s = Report("schema", ASKED), time.monotonic()
    with own_platform() as platform:
        job = httpx.post(f"{platform.url}/jobs", json={"model": "echo", "items": ["a"]}).json()[
            "id"
        ]
        headers = {"Authorization": f"Bearer {_admin_key(platform)}"}
        with_key = _explore(platform, headers, cases, seed_, job)
        without = _explore(platform, {}, cases, seed_, job)
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
    platform: Platform, headers: dict[str, str], cases: int, seed_: int, job: str
) -> Tally:
    labels, tally = list(_operations(platform.url)), Tally()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        while tally.cases < cases and labels:
            share = max(_LEAST, -(-(cases - tally.cases) // len(labels)))
            say(f"{len(labels)} operations, {share} cases of each")
            tries = [pool.submit(_try, platform.url, n, headers, share, seed_, job) for n in labels]
            found = [future.result() for future in tries]
            for one in found:
                tally += one
            # Of some there are few to make up: the others take their part.
            labels = [n for n, one in zip(labels, found, strict=True) if one.cases >= share]
            seed_ += 1
    return tally


@cache
def _operations(url: str) -> dict[str, Any]:
    load_all_checks()
    document = schemathesis.openapi.from_url(f"{url}/openapi.json")
    # The credential is ours: what it makes of that one would not be sent.
    document.config.generation.update(with_security_parameters=False)
    found: list[Any] = [one.ok() for one in document.get_all_operations()]  # type: ignore[union-attr]
    return {operation.label: operation for operation in found}


def _try(url: str, label: str, headers: dict[str, str], cases: int, seed_: int, job: str) -> Tally:
    """So many requests to one operation, half of them wrong; in a process of its own: hypothesis
    has no threads."""
    tally, not_checked = Tally(), _NOT_CHECKED.get(label, [])

    def made(mode: GenerationMode) -> None:
        @seed(seed_)
        @settings(
            max_examples=-(-cases // 2),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=_operations(url)[label].as_strategy(generation_mode=mode))
        def each(case: Any) -> None:
            if mode is GenerationMode.POSITIVE:
                _aim(case, job)
            _one(case, session, headers, not_checked, tally)

        each()

    with requests.Session() as session:
        made(GenerationMode.POSITIVE)
        with suppress(Unsatisfiable, SkipTest):  # nothing can be wrong with some
            made(GenerationMode.NEGATIVE)
    return tally


def _aim(case: Any, job: str) -> None:
    """At a model and a job that are there: else nearly every answer is a 404."""
    if isinstance(case.body, dict) and "model" in case.body:
        case.body["model"] = "echo"
    if "job_id" in (case.path_parameters or {}):
        case.path_parameters["job_id"] = job


def _one(
    case: Any,
    session: requests.Session,
    headers: dict[str, str],
    not_checked: list[Any],
    tally: Tally,
) -> None:
    label = case.operation.label
    tally.cases += 1
    try:
        response = case.call(session=session, headers=headers, timeout=_PATIENCE_S)
        tally.statuses[response.status_code] += 1
        tally.server_errors += response.status_code in _OUR_FAULT
        case.validate_response(
            response,
            headers=headers,
            excluded_checks=not_checked,
            transport_kwargs={"session": session, "headers": headers, "timeout": _PATIENCE_S},
        )
    except requests.Timeout:
        tally.hangs += 1
        tally.violations[f"{label}: no answer in {_PATIENCE_S:g} s"] += 1
    except FailureGroup as group:
        for one in group.exceptions:
            tally.violations[
                f"{label}: {type(one).__name__}: {' '.join(str(one).split())[:400]}"
            ] += 1
