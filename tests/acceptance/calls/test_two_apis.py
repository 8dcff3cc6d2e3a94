"""Two api processes and two workers: whoever is asked, each call gets its own answer."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from ops.supervisor.platform import Platform
from tests.support.children import second_api
from tests.support.clients import infer
from tests.support.extra_models import extra_models
from tests.support.models.entries import function
from tests.support.platforms import TWO_WORKERS
from tests.support.wait import eventually

MODELS = function("paced:steady", target_ms=60000, limits={"max_batch": 16})
NEWER = MODELS.replace('version = "1"', 'version = "2"')
PLATFORM = TWO_WORKERS


@pytest.fixture(scope="module")
def apis(platform: Platform) -> Iterator[list[httpx.Client]]:
    with (
        second_api(platform) as second,
        httpx.Client(base_url=platform.url) as one,
        httpx.Client(base_url=second.name) as two,
    ):
        yield [one, two]


def test_each_call_gets_its_own_answer_whoever_is_asked(apis: list[httpx.Client]) -> None:
    with ThreadPoolExecutor(64) as pool:
        calls = pool.map(lambda n: infer(apis[n % 2], "steady", f"text {n}"), range(400))
        answers = list(calls)
    assert {answer.status_code for answer in answers} == {200}
    assert [answer.json()["output"] for answer in answers] == [f"text {n}" for n in range(400)]
    assert len({answer.json()["id"] for answer in answers}) == 400


def test_calls_of_both_share_launches(apis: list[httpx.Client]) -> None:
    """More calls are in launches than either api has asked for."""

    def call(n: int) -> int:
        return int(infer(apis[n % 2], "steady", f"text {n}").json()["timing"]["batch_size"])

    def largest() -> int:
        with ThreadPoolExecutor(16) as pool:
            return max(pool.map(call, range(32)))

    assert eventually(lambda: (found := largest()) > 8 and found) <= 16


def test_a_job_made_at_one_is_read_at_the_other(apis: list[httpx.Client]) -> None:
    job = apis[0].post("/jobs", json={"model": "steady", "items": ["x"]}).json()["id"]
    eventually(lambda: apis[1].get(f"/jobs/{job}").json()["state"] == "completed")


def test_both_take_up_a_changed_models_file_and_a_bare_name_goes_to_what_is_ready(
    platform: Platform, apis: list[httpx.Client]
) -> None:
    file = platform.settings.models
    assert isinstance(file, Path)

    def version(api: httpx.Client, model: str) -> str:
        answer = infer(api, model, "x")
        assert answer.status_code == 200, answer.text
        return str(answer.json()["version"])

    before = file.read_text()
    file.write_text("[[model]")
    file.write_text(before)
    with extra_models(platform, NEWER):
        for api in apis:
            eventually(lambda api=api: version(api, "steady") == "2")
            assert [version(api, f"steady@{n}") for n in "12"] == ["1", "2"]
