"""POST /v1/embeddings: what is rejected, limited, or ends early."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from ops.supervisor.platform import Platform
from tests.acceptance.compat.embeddings import embeddings
from tests.acceptance.compat.embeddings.embeddings import TEXTS, embedded
from tests.support.clients import http_of
from tests.support.keys import make_key_at
from tests.support.models.embedding import LAUNCHES, RELEASED
from tests.support.packages import openai_of, openai_with
from tests.support.platforms import CHATTING
from tests.support.wait import eventually

PLATFORM = CHATTING
MODELS = embeddings.MODELS


@pytest.mark.parametrize(
    ("asked", "param", "words"),
    [
        ({"input": 7}, "input", "a list of either"),
        ({"input": None}, "input", "a list of either"),
        ({"input": {"input": "x"}}, "input", "a list of either"),
        ({"input": []}, "input", "empty"),
        ({"input": ""}, "input", "empty string"),
        ({"input": ["x", ""]}, "input", "input 1 of the list is an empty string"),
        ({"model": "texts-only", "input": [1]}, "input", "check_embedding_ctx_length=False"),
        ({"model": "texts-only", "input": ["x", [1]]}, "input", "accept_token_ids = true"),
        ({"input": ["x", 7]}, "input", "input 1 of the list"),
        ({"input": ["x", []]}, "input", "input 1 of the list"),
        ({"input": [["x"]]}, "input", "whole number|token ids"),
        ({"input": [1, "x"]}, "input", "token id 1"),
        ({"input": [1, True]}, "input", "token id 1"),
        ({"input": [30522]}, "input", "0 to 30521"),
        ({"input": [[1], [-1]]}, "input", "input 1 of the list"),
        ({"input": [1] * 8193}, "input", "8192"),
        ({"input": ["x"] * 2049}, "input", "2048"),
        ({"input": ["x", "a\0b"]}, "input", "input 1 of the list.*NUL"),
        ({"dimensions": 0}, "dimensions", "greater"),
        ({"dimensions": 385}, "dimensions", "1 to 384"),
        ({"dimensions": "7"}, "dimensions", "integer"),
        ({"encoding_format": "hex"}, "encoding_format", "float"),
        ({"extra_body": {"timeout_ms": 0}}, "timeout_ms", "greater"),
        ({"extra_body": {"surprise": 1}}, "surprise", "not permitted"),
        ({"model": "echo"}, "model", "embeddings"),
        ({"model": "slow", "input": [1]}, "input", "takes no token ids"),
        ({"model": ""}, "model", "at least 1"),
    ],
)
def test_what_is_wrong_is_a_bad_request_that_names_it(
    openai_client: OpenAI, asked: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        openai_client.embeddings.create(**{"model": "minilm", "input": "x", **asked})
    assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")


def test_a_model_that_is_not_there_is_not_found(openai_client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no model 'gone'"):
        openai_client.embeddings.create(model="gone", input="x")


def test_a_wrong_key_and_one_without_the_scope_get_nothing(platform: Platform) -> None:
    reads, _ = make_key_at(platform.settings.database_url, "embeddings", scopes=frozenset({"read"}))
    for other, refused in (
        ("mk_" + "a" * 43, openai.AuthenticationError),
        (reads, openai.PermissionDeniedError),
    ):
        with openai_with(platform, other) as made, pytest.raises(refused):
            made.embeddings.create(model="minilm", input="x")


def test_a_body_that_is_too_large_is_refused(openai_client: OpenAI) -> None:
    with pytest.raises(openai.APIStatusError, match="4,194,304 bytes") as caught:
        openai_client.embeddings.create(model="minilm", input=["x" * 4096] * 1100)
    assert caught.value.status_code == 413


def test_what_takes_too_long_ends_at_its_deadline(openai_client: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        openai_client.embeddings.create(
            model="slow", input=["x"] * 160, extra_body={"timeout_ms": 600}
        )
    assert caught.value.status_code == 504
    with pytest.raises(openai.APIStatusError):
        openai_client.embeddings.create(model="slow", input="x", extra_body={"timeout_ms": 1})


def assert_answers_again(client: OpenAI) -> None:
    """Checks that the model answers, so that all calls before have been launched or dropped."""
    patient = client.with_options(max_retries=9)
    assert embedded(patient.embeddings.create(model="slow", input="after")) == [[5.0, 1.0]]


def launched(platform: Platform, prefix: str) -> int:
    """Counts the texts of which the model has begun a launch."""
    lines = (platform.settings.home / LAUNCHES).read_text().splitlines()
    return len({line for line in lines if line.startswith(prefix)})


@pytest.fixture
def released(platform: Platform) -> Iterator[Path]:
    """File that lets go what the model holds; there at the end, else the model is never free."""
    path: Path = platform.settings.home / RELEASED
    path.unlink(missing_ok=True)
    yield path
    path.touch()


def until_withdrawn(platform: Platform) -> None:
    """Waits until the api waits for no call, while the model holds one."""
    with http_of(platform, "admins", role="admin") as admin:
        eventually(lambda: "\nmillrace_calls_in_flight 0.0\n" in admin.get("/metrics").text)


def test_where_some_fail_all_do_and_the_others_are_taken_back(
    platform: Platform, openai_client: OpenAI
) -> None:
    """They would be 88 launches: seconds in which the api learns of the first failure."""
    texts = ["broken" if n % 8 == 0 else f"spared {n}" for n in range(400)]
    with pytest.raises(openai.InternalServerError, match="it is broken"):
        openai_client.embeddings.create(model="slow", input=texts)
    assert_answers_again(openai_client)
    assert launched(platform, "spared") < 300  # of 350


def test_a_client_that_goes_takes_all_of_its_list_back(
    platform: Platform, openai_client: OpenAI, released: Path
) -> None:
    texts = [f"hold {n}" for n in range(60)]

    def leaves_while_it_runs() -> bool:
        """A starved api may not have begun when its client goes."""
        with pytest.raises(openai.APITimeoutError):
            openai_client.with_options(timeout=0.5).embeddings.create(model="slow", input=texts)
        return launched(platform, "hold") > 0

    eventually(leaves_while_it_runs)
    until_withdrawn(platform)
    released.touch()
    assert_answers_again(openai_client)
    assert launched(platform, "hold") <= 4  # the launch that it left


@pytest.fixture
def limited(platform: Platform, request: pytest.FixtureRequest) -> Iterator[OpenAI]:
    """Makes a client of a tenant with these limits."""
    tenant = request.node.name.partition("[")[0][:60].replace("_", "-")
    path, data = f"/tenants/{tenant}/limits", {"data": [request.param]}
    with (
        openai_of(platform, tenant) as made,
        http_of(platform, "admins", role="admin") as admin,
    ):
        assert admin.put(path, json=data).status_code == 200
        yield made


@pytest.mark.parametrize("limited", [{"requests_per_s": 0.01}], indirect=True)
def test_a_list_is_one_request(limited: OpenAI) -> None:
    answer = limited.embeddings.with_raw_response.create(model="minilm", input=TEXTS)
    assert answer.headers["RateLimit"].startswith('"requests";r=0')
    assert len(answer.parse().data) == len(TEXTS)
    with pytest.raises(openai.RateLimitError) as caught:
        limited.embeddings.create(model="minilm", input=TEXTS)
    assert int(caught.value.response.headers["Retry-After-Ms"]) > 10_000


@pytest.mark.parametrize("limited", [{"tokens_per_s": 20}], indirect=True)
def test_a_list_is_charged_with_all_its_tokens(limited: OpenAI) -> None:
    answer = limited.embeddings.with_raw_response.create(model="minilm", input=TEXTS * 20)
    tokens = answer.parse().usage.total_tokens
    assert tokens > 400
    seconds = int(answer.headers["RateLimit"].rpartition("t=")[2])
    assert seconds == pytest.approx(tokens / 20, abs=3)
    with pytest.raises(openai.RateLimitError):
        limited.embeddings.create(model="minilm", input="x")


@pytest.mark.parametrize("limited", [{"calls_in_flight": 2}], indirect=True)
def test_a_list_has_no_more_calls_in_flight_than_its_tenant_may(limited: OpenAI) -> None:
    answer = limited.embeddings.create(model="slow", input=["x" * n for n in range(1, 13)])
    assert embedded(answer) == [[float(n), 1.0] for n in range(1, 13)]
