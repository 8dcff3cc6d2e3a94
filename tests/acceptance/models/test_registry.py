"""Versions are registered, aliased and retired by HTTP while calls and jobs run; those with files
are loaded as a trusted key signed them, or not at all."""

import html
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import Engine

from jobs import clock
from jobs.artifacts import bundle, folder
from jobs.artifacts.push import blob_key
from millrace import APIStatusError, Client
from ops.supervisor.platform import Platform
from tests.support import signing
from tests.support.command_line import run_millrace
from tests.support.generation import adapters, tiny_llama
from tests.support.generation.generating import run, sequence
from tests.support.jobs import assert_invariants, completed
from tests.support.models.entries import model
from tests.support.platforms import Platforms, spec
from tests.support.stores.transactions import scalar, scalars
from tests.support.wait import eventually, slowdown
from workers.engines.transformers.engine import TransformersGenerator

pytestmark = pytest.mark.nightly

FILE = model("x", "echo", limits={"slice_items": 20})
ENTRY = {"engine": "echo", "target_ms": 2000, "limits": {"slice_items": 20}}
ROUTE = "/admin/models/x/routes/*"
ITEMS, CALLERS = 300, 4
TEXTS = [f"item {n}" for n in range(ITEMS)]
FLIPS, FLIP_S = 6, 6.0  # it takes one, and a starved process stands still
PROMPT = "The cat sat on the mat, and"
CODE = """SAMPLES = ["a"]
ANSWER = "{}"
def predict(batch):
    return [ANSWER] * len(batch)
"""
PYTHON = {"engine": "python", "task": "text", "options": {"file": "code/model.py"}}
EXPIRED = "valid_until = 2026-02-01T00:00:00Z"
REVOKED = "revoked_at = 2026-03-01T00:00:00Z"
KEYS = {name: signing.make_key() for name in ("release", "old", "stolen", "stranger")}


def trust_file(path: Path) -> Path:
    """All keys but that of the stranger."""
    lines = ['policy = "require"']
    for name, more in (("release", ""), ("old", EXPIRED), ("stolen", REVOKED)):
        signing.write(path / f"{name}.pub", signing.public_pem(KEYS[name]))
        lines += ["[[key]]", f'name = "{name}"', f'file = "{name}.pub"', more]
    return signing.write(path / "trust.toml", "\n".join(lines).encode())


@pytest.fixture(scope="module")
def platform(platforms: Platforms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    trust = trust_file(tmp_path_factory.mktemp("trust"))
    with platforms.running(spec(FILE), trust=trust) as started:
        yield started


def infer(client: Client, model: str = "x", key: str = "", timeout_ms: int = 20_000) -> str:
    """Returns the version that answered."""
    headers = {"Idempotency-Key": key} if key else {}
    body = {"model": model, "input": "a", "timeout_ms": timeout_ms}
    return str(client.request("POST", "/infer", json=body, headers=headers)["version"])


def alias(client: Client, version: str) -> None:
    client.request("PUT", "/admin/models/x/aliases/stable", json={"version": version})


def route(client: Client, versions: str) -> None:
    """Has versions share the calls."""
    splits = [{"version": one, "percent": 50} for one in versions]
    client.request("PUT", ROUTE, json={"splits": splits})


def add(client: Client, version: str) -> Any:
    """Registers a version and waits until it is ready; returns the change."""
    body = {"name": "x", "version": version, "entry": ENTRY}
    change = client.request("POST", "/admin/models", json=body)["change"]
    eventually(lambda: is_ready(client, version))
    return change


def is_ready(client: Client, version: str) -> bool:
    models = client.request("GET", "/models")["data"]
    return any(one["version"] == version and one["ready"] for one in models)


def test_an_alias_flips_under_calls_and_jobs_and_no_launch_mixes_versions(
    platform: Platform, client: Client, database: Engine
) -> None:
    add(client, "2")
    assert add(client, "2") == "unchanged"
    alias(client, "1")
    eventually(lambda: infer(client) == "1")
    with pytest.raises(APIStatusError):
        infer(client, key="late", timeout_ms=1)
    jobs, routed = {}, []
    for n in range(FLIPS):
        version = "21"[n % 2]
        asked = f"flip-{n}"
        before = infer(client, key=asked)
        alias(client, version)
        since_s = clock.monotonic()
        eventually(lambda version=version: infer(client) == version)
        assert clock.monotonic() - since_s < FLIP_S * slowdown()
        assert {infer(client) for _ in range(10)} == {version}
        assert infer(client, key=asked) == before  # under its key: as it was
        assert infer(client, "x@stable") == version
        jobs[client.jobs.submit("x", TEXTS).id] = version
        assert infer(client, key="late") == "1"  # whose answer failed
        route(client, "12")
        eventually(lambda: {infer(client) for _ in range(20)} == {"1", "2"})
        routed.append(client.jobs.submit("x", TEXTS, versioning="routed").id)
        httpx.delete(platform.url + ROUTE).raise_for_status()
    alias(client, "2")
    eventually(lambda: infer(client) == "2")
    for job, version in jobs.items():
        eventually(lambda job=job: completed(client, job))
        assert client.jobs.get(job)["version"] == version
    for job in routed:
        eventually(lambda job=job: completed(client, job))
        lines = list(client.jobs.results(job, wait=False))
        assert [line["seq"] for line in lines] == list(range(ITEMS))
        assert {line["version"] for line in lines} <= {"1", "2"}
    assert_invariants(platform)
    assert {"1", "2"} <= launched_versions(database, "x")
    assert scalar(database, "SELECT count(*) FROM audit WHERE act = 'model.alias'") >= FLIPS


def launched_versions(database: Engine, model: str) -> set[str]:
    query = "SELECT DISTINCT version FROM launches WHERE model = :model"
    return {*scalars(database, query, {"model": model})}


def test_slices_that_wait_for_a_version_go_over_once_its_route_is_gone(
    platform: Platform, client: Client, database: Engine
) -> None:
    ready = "SELECT count(*) FROM slices WHERE state = 'ready' AND version = '{}'".format
    waiting = ready(9)
    add(client, "2")
    alias(client, "2")
    nowhere = {"name": "x", "version": "9", "entry": ENTRY | {"pool": "nowhere"}}
    client.request("POST", "/admin/models", json=nowhere)
    route(client, "19")
    eventually(lambda: infer(client) == "1")
    job = client.jobs.submit("x", TEXTS, versioning="routed").id
    assert scalar(database, waiting)
    eventually(lambda: not scalar(database, ready(1)))  # those that still wait go over as well
    httpx.delete(platform.url + ROUTE).raise_for_status()
    since_s = clock.monotonic()
    eventually(lambda: not scalar(database, waiting))
    assert clock.monotonic() - since_s < FLIP_S * slowdown()
    eventually(lambda: completed(client, job))
    versions = {result["version"] for result in client.jobs.results(job, wait=False)}
    assert versions == {"1", "2"}


def statuses_until_404(platform: Platform, model: str) -> list[int]:
    """Calls a version until it is there no more; returns the statuses before."""
    statuses = list[int]()
    while (status := answer_of(platform, model)[0]) != 404:
        statuses.append(status)
    return statuses


def test_a_retired_version_ends_its_jobs_and_is_then_unloaded(
    platform: Platform, client: Client
) -> None:
    add(client, "3")
    alias(client, "1")
    job = client.jobs.submit("x@3", TEXTS).id
    with ThreadPoolExecutor(CALLERS) as threads:
        calling = [threads.submit(statuses_until_404, platform, "x@3") for _ in range(CALLERS)]
        retired = client.request("POST", "/admin/models/x/versions/3/retire")
        assert (retired["change"], retired["unfinished_jobs"]) == ("changed", [job])
        for calls in calling:  # none in flight is lost; 503: refused on a busy machine
            assert set(calls.result()) <= {200, 503}
    eventually(lambda: completed(client, job))
    eventually(lambda: not is_ready(client, "3"))


def make_folder(path: Path, answer: str, key: str = "release") -> Path:
    """A folder whose version gives this answer, with its signature ("": none)."""
    signing.write_tree(path, {"code/model.py": CODE.format(answer).encode(), "config.json": b"{}"})
    if key:
        signing.write(path / "model.sig", signature(path, KEYS[key]))
    return path


def signature(path: Path, key: ec.EllipticCurvePrivateKey) -> bytes:
    return bundle.sign(folder.read(path), "signed", key).encode()


def register(platform: Platform, client: Client, path: Path, damaged: bytes | None = None) -> None:
    """Pushes a folder for a pool that has no workers, and registers its artifact once more for
    those that there are. damaged: what the blob store has of its code then."""
    words = ["--name", "parked", "--version", path.name, "--entry"]
    home, entry = str(platform.settings.home), json.dumps(PYTHON | {"pool": "nowhere"})
    run_millrace("models", "push", str(path), *words, entry, MILLRACE_HOME=home)
    artifact = folder.read(path)
    if damaged is not None:
        files = Path(platform.settings.files.removeprefix("file:"))
        blob = files / blob_key(artifact.digests["code/model.py"])
        blob.chmod(0o600)
        blob.write_bytes(damaged)
    body = {"name": "signed", "version": path.name, "entry": PYTHON, "artifact": artifact.digest}
    body |= PROBES.get(path.name, {})
    assert client.request("POST", "/admin/models", json=body)["change"] == "added"


def answer_of(platform: Platform, model: str, value: Any = "a") -> tuple[int, Any]:
    body = {"model": model, "input": value, "timeout_ms": 20_000}
    answer = httpx.post(f"{platform.url}/infer", json=body)
    return answer.status_code, answer.json().get("output", "")


def failures_of(client: Client, version: str) -> tuple[str, str]:
    """Why a version can't be loaded, once that is known: of the list of models, and of `why`."""

    def error() -> Any:
        models = client.request("GET", "/models")["data"]
        found = [one for one in models if (one["name"], one["version"]) == ("signed", version)]
        assert not any(one["ready"] for one in found)
        return found and found[0]["error"]

    def words() -> list[Any]:  # none while the load is tried again
        findings = client.request("GET", f"/models/signed@{version}/why")["diagnoses"]
        return [one["words"] for one in findings if one["code"] == "model_failed"]

    return str(eventually(error)), str(eventually(words))


PROBES = {"probed": {"probe": {"inputs": ["a"], "outputs": ["known"]}}}
REFUSED = {
    "tampered": ["code/model.py", "is not what was pushed", "'release' signed"],
    "truncated": ["code/model.py", "has 9 bytes", "'release' signed"],
    "extra": ["extra.py", "are not in what the key 'release' signed"],
    "unsigned": ["it has no signature"],
    "old": ["the key 'old' expired"],
    "stolen": ["the key 'stolen' was revoked"],
    "probed": ["input 1", "output is 'probed', not 'known'"],
    "stranger": [bundle.fingerprint(KEYS["stranger"].public_key())],
}


def test_a_version_is_served_only_with_the_files_that_a_trusted_key_signed(
    platform: Platform, client: Client, database: Engine, tmp_path: Path
) -> None:
    register(platform, client, make_folder(tmp_path / "good", "good"))
    eventually(lambda: answer_of(platform, "signed@good") == (200, "good"))
    known = {"inputs": ["a"], "outputs": ["good"]}
    recorded = "/admin/models/signed/versions/good/probe"
    assert client.request("PUT", recorded, json=known)["change"] == "added"
    assert client.request("PUT", recorded, json=known)["change"] == "unchanged"
    for name in REFUSED:
        key = {"unsigned": ""}.get(name, name if name in KEYS else "release")
        path = make_folder(tmp_path / name, name, key)
        code = (path / "code/model.py").read_bytes()
        damaged = {"tampered": bytes([code[0] ^ 1]) + code[1:], "truncated": code[:9]}.get(name)
        if name == "extra":
            signing.write(path / "extra.py", b"pass\n")
        register(platform, client, path, damaged)
    for version, words in REFUSED.items():
        failures = failures_of(client, version)
        page = httpx.get(f"{platform.url}/dashboard/models/signed@{version}").text
        said = [*failures, html.unescape(page)]
        assert not [(word, one) for word in words for one in said if word not in one]
        assert answer_of(platform, f"signed@{version}") == (503, "")
    eventually(lambda: answer_of(platform, "signed") == (200, "good"))
    assert launched_versions(database, "signed") <= {"good"}


SIZES = {"hidden": 64, "layers": 1, "heads": 4, "intermediate": 128}
ENCODER = {"engine": "encoder", "options": SIZES | {"threads": 1}}
LAYERS = {"encoder.layer.0.output.dense": (128, 64)}


def push_adapter(platform: Platform, path: Path, base: str, status: int = 0) -> str:
    words = ["models", "push", str(path), "--name", path.name, "--base", base]
    return run_millrace(*words, status=status, MILLRACE_HOME=str(platform.settings.home)).output


def output_of(platform: Platform, model: str, value: Any = "a") -> Any:
    """Returns the output, once the model answers."""
    return eventually(lambda: (one := answer_of(platform, model, value))[0] == 200 and one[1])


def test_an_adapter_is_verified_and_served_for_its_base_alone(
    platform: Platform, client: Client, tmp_path: Path
) -> None:
    for version, pool in (("1", "default"), ("2", "nowhere")):
        body = {"name": "enc", "version": version, "entry": ENCODER | {"pool": pool}}
        client.request("POST", "/admin/models", json=body)
    good, unsigned = (
        adapters.save(tmp_path / name, LAYERS, seed=7, size=1) for name in ("good", "unsigned")
    )
    signing.write(unsigned / "README.md", b"another artifact")
    signing.write(good / "model.sig", signature(good, KEYS["release"]))
    assert push_adapter(platform, good, "enc@1") == "enc:good@1  changed\n"
    assert "not as an adapter of enc@2" in push_adapter(platform, good, "enc@2", status=1)
    (tmp_path / "no").mkdir()
    assert "there is no file" in push_adapter(platform, tmp_path / "no", "enc@1", status=1)
    vector = output_of(platform, "enc:good@1")
    assert vector != pytest.approx(output_of(platform, "enc@1"), abs=1e-3)
    job = client.jobs.submit("enc:good@1", [b'"a"\n'])["id"]
    eventually(lambda: completed(client, job))
    [line] = client.jobs.results(job, wait=False)
    assert line["output"] == pytest.approx(vector, abs=1e-5)
    assert answer_of(platform, "enc:good@2")[0] == 404
    push_adapter(platform, unsigned, "enc@1")
    eventually(lambda: answer_of(platform, "enc:unsigned@1")[0] == 500)
    for path in ("/models/enc:unsigned@1/why", "/models"):  # the worker says it a little later
        eventually(lambda path=path: "no signature" in json.dumps(client.request("GET", path)))


def test_a_version_that_generates_is_served_from_artifacts_with_its_probe_and_an_adapter(
    platform: Platform, tmp_path: Path
) -> None:
    base = tiny_llama.save(tmp_path / "llama")
    tuned = adapters.save(tmp_path / "tuned", adapters.llama_shapes(base), seed=1)
    for one in (base, tuned):
        signing.write(one / "model.sig", signature(one, KEYS["release"]))
    options = {"path": ".", "threads": 1, "adapter_slots": 2}
    entry = json.dumps({"engine": "transformers", "options": options, "target_ttft_ms": 600_000})
    settings = platform.settings
    given = {"MILLRACE_HOME": str(settings.home), "MILLRACE_TRUST": str(settings.trust)}
    words = ["--name", "gen", "--version", "1", "--entry", entry]
    run_millrace("models", "push", str(base), *words, **given)
    asked = signing.write(tmp_path / "asked.jsonl", json.dumps({"prompt": PROMPT}).encode())
    record = ["models", "probe", "record", "gen@1", "--input", str(asked)]
    assert "added" in run_millrace(*record, **given).output
    push_adapter(platform, tuned, "gen@1")
    assert generated(platform, "gen@1") == greedy(base)
    merged = adapters.merge_llama(base, tuned, tmp_path / "merged")
    assert generated(platform, "gen:tuned@1") == greedy(merged) != greedy(base)


def greedy(path: Path) -> str:
    """Returns the text that a model in a folder generates."""
    own = TransformersGenerator(**tiny_llama.options(path))
    try:
        [done] = run(own, [sequence(own, PROMPT, max_tokens=12)])
    finally:
        own.close()
    return done.text


def generated(platform: Platform, model: str) -> str:
    """Returns the text that a served model generates, once it answers."""
    value = {"prompt": PROMPT, "temperature": 0, "max_tokens": 12}
    return str(output_of(platform, model, value)["choices"][0]["text"])
