"""`millrace bench schema`: requests that schemathesis generates from /openapi.json, with a valid
key and without one.

A violation is a response that isn't as documented; a hang takes longer than 20 s.
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
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import positive_data_acceptance

from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report, scenario
from ops.supervisor.platform import Platform

_TIMEOUT_S = 20.0
_MIN_CASES = 10  # of an operation
_SERVER_ERRORS = set(range(500, 600)) - {504}

# OpenAPI can't say that the query must name the model when the body is NDJSON, which parameters a
# model takes, which scopes a role has, that no two limits are for the same model and key, where a
# webhook may go, nor that a batch is made of a file that is there; a deadline of a millisecond
# passes, which is a 504 as documented.
_NOT_CHECKED: dict[str, list[Any]] = {
    **{
        route: [positive_data_acceptance]
        for route in (
            *("POST /jobs", "POST /keys", "PUT /tenants/{tenant}/limits"),
            *("PUT /webhooks/endpoint", "POST /v1/batches"),
        )
    },
    "POST /infer": [positive_data_acceptance, not_a_server_error],
}


@schemathesis.serializer("application/x-ndjson")
def _ndjson(context: Any, value: Any) -> bytes:
    return json.dumps(value).encode()


@dataclass(slots=True)
class Tally:
    """Results of cases."""

    statuses: Counter[int] = field(default_factory=Counter)  #: 0: a hang
    violations: Counter[str] = field(default_factory=Counter)  #: by operation and message

    @property
    def cases(self) -> int:
        """Number of requests."""
        return self.statuses.total()

    def add(self, other: "Tally") -> None:
        """Adds others' results."""
        self.statuses += other.statuses
        self.violations += other.violations


@scenario(
    "schema",
    "cases_with_key >= 10000",
    "cases_without_key >= 10000",
    *(f"{name} <= 0" for name in ("server_errors", "violations", "hangs")),
)
def run(report: Report, scale: Scale, cases: int, seed: int) -> None:
    """Sends so many requests with a key, and as many without."""
    since_s = time.monotonic()
    with own_platform() as platform:
        job = httpx.post(f"{platform.url}/jobs", json={"model": "echo", "items": ["a"]}).json()
        headers = {"Authorization": f"Bearer {_admin_key(platform)}"}
        with_key = _explore(platform, headers, cases, seed, job["id"])
        without = _explore(platform, {}, cases, seed, job["id"])
        alive = httpx.get(f"{platform.url}/livez", timeout=_TIMEOUT_S).status_code == 200
    for name, tally in (("with", with_key), ("without", without)):
        say(f"{name} a key: {dict(sorted(tally.statuses.items()))}")
        for what, times in tally.violations.most_common():
            say(f"  {times} times: {what}")
    statuses = with_key.statuses + without.statuses
    report.add(
        cases_with_key=with_key.cases,
        cases_without_key=without.cases,
        server_errors=sum(statuses[status] for status in _SERVER_ERRORS),
        violations=with_key.violations.total() + without.violations.total(),
        hangs=statuses[0] + (not alive),
        seconds=time.monotonic() - since_s,
    )


def _admin_key(platform: Platform) -> str:
    """Creates the first key, which ends open access, and waits until the api has noticed."""
    request = {"tenant": "default", "role": "admin"}
    key: str = httpx.post(f"{platform.url}/keys", json=request).raise_for_status().json()["key"]
    while httpx.get(f"{platform.url}/jobs").status_code != 401:
        time.sleep(0.1)
    return key


def _explore(platform: Platform, headers: dict[str, str], cases: int, seed: int, job: str) -> Tally:
    labels, tally = list(_operations(platform.url)), Tally()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        while tally.cases < cases and labels:
            share = max(_MIN_CASES, -(-(cases - tally.cases) // len(labels)))
            say(f"{len(labels)} operations, {share} cases of each")
            tries = [pool.submit(_try, platform.url, n, headers, share, seed, job) for n in labels]
            found = [future.result() for future in tries]
            for one in found:
                tally.add(one)
            # Some operations have few different cases: the others take their part.
            labels = [n for n, one in zip(labels, found, strict=True) if one.cases >= share]
            seed += 1
    return tally


@cache
def _operations(url: str) -> dict[str, Any]:
    load_all_checks()
    document = schemathesis.openapi.from_url(f"{url}/openapi.json")
    # We send the credential ourselves.
    document.config.generation.update(with_security_parameters=False)
    found: list[Any] = [one.ok() for one in document.get_all_operations()]  # type: ignore[union-attr]
    return {operation.label: operation for operation in found}


def _try(url: str, label: str, headers: dict[str, str], cases: int, seed: int, job: str) -> Tally:
    """Sends requests to one operation, half of them invalid.

    Runs in a process of its own: hypothesis has no threads.
    """
    tally, operation = Tally(), _operations(url)[label]

    def send(mode: GenerationMode) -> None:
        """Sends half of the requests."""

        @seeded(seed)
        @settings(
            max_examples=-(-cases // 2),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def each(case: Any) -> None:
            """Sends a request."""
            if mode is GenerationMode.POSITIVE:
                _aim(case, job)
            _one(case, session, headers, tally)

        each()

    with requests.Session() as session:
        send(GenerationMode.POSITIVE)
        with suppress(Unsatisfiable, SkipTest):  # some have no invalid case
            send(GenerationMode.NEGATIVE)
    return tally


def _aim(case: Any, job: str) -> None:
    """Puts in a model and a job that exist: else nearly every response is a 404."""
    if isinstance(case.body, dict) and "model" in case.body:
        case.body["model"] = "echo"
    if "job_id" in (case.path_parameters or {}):
        case.path_parameters["job_id"] = job


def _one(case: Any, session: requests.Session, headers: dict[str, str], tally: Tally) -> None:
    label = case.operation.label
    options = {"session": session, "headers": headers, "timeout": _TIMEOUT_S}
    not_checked = _NOT_CHECKED.get(label, [])
    try:
        response = case.call(**options)
        tally.statuses[response.status_code] += 1
        case.validate_response(
            response, headers=headers, excluded_checks=not_checked, transport_kwargs=options
        )
    except requests.Timeout:
        tally.statuses[0] += 1
        tally.violations[f"{label}: no response in {_TIMEOUT_S:g} s"] += 1
    except FailureGroup as group:
        for one in group.exceptions:
            what = " ".join(str(one).split())[:400]
            tally.violations[f"{label}: {type(one).__name__}: {what}"] += 1
