"""Upstream generator over a server that isn't ours: guidellm's mock server."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.workers.engines.generators.conftest import upstream
from tests.support.clients import chat
from tests.support.generation.generating import run, sequence
from tests.support.servers import mock_server
from tests.support.wait import eventually
from workers.engines.upstream.streaming.openai_generator import OpenAIGenerator

# The server is installed, and imports much.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
ITL_MS = 20.0
OUTPUT = 12  # tokens of an answer


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return mock_server.install(tmp_path_factory.mktemp("guidellm"))
    except mock_server.NotInstalled as error:
        pytest.skip(f"guidellm's mock server can't be installed: {error}")


@pytest.fixture(scope="module")
def url(installed: Path) -> Iterator[str]:
    with mock_server.running(installed, itl_ms=ITL_MS, ttft_ms=30, output_tokens=OUTPUT) as made:
        yield made


@pytest.fixture
def generator(url: str) -> Iterator[OpenAIGenerator]:
    concurrency = {"start": 20, "max": 20}
    with closing(upstream(url, "llama-3.1-8b-instruct", concurrency=concurrency)) as made:
        yield made


def test_text_is_streamed_token_by_token_and_usage_is_the_servers(
    generator: OpenAIGenerator,
) -> None:
    steps: list[Any] = []
    [done] = run(generator, [sequence(generator, chat("hello there"))], steps=steps)
    assert done.finish == "stop"
    assert done.usage is not None
    assert (done.usage.input > 0, done.usage.output) == (True, OUTPUT)
    assert len(done.tokens) == OUTPUT
    assert len([step for step in steps if step.emitted]) > OUTPUT // 2
    assert len(done.text) >= OUTPUT
    [cut] = run(generator, [sequence(generator, chat("hello", max_tokens=3))])
    assert cut.usage is not None
    assert cut.usage.output == len(cut.tokens) == 3


def test_twenty_at_once_are_not_one_after_the_other(generator: OpenAIGenerator) -> None:
    steps: list[Any] = []
    ones = [sequence(generator, chat(f"hello {n}")) for n in range(20)]
    found = run(generator, ones, steps=steps)
    assert [(one.finish, one.output) for one in found] == [("stop", OUTPUT)] * 20
    assert max(step.sequences for step in steps) > 10  # the first may end before the last is sent


def test_an_abort_in_the_middle_closes_the_connection(installed: Path) -> None:
    with (
        mock_server.running(installed, itl_ms=50, output_tokens=2000) as url,
        closing(upstream(url, "m", timeout_s=55)) as generator,
    ):
        eventually(lambda: connections(url) == 1)  # kept from the look for metrics
        one = sequence(generator, chat("hello", max_tokens=2000))
        generator.add(one)
        eventually(lambda: generator.step(64).emitted)
        before = connections(url)
        generator.abort(one.id)
        eventually(lambda: connections(url) < before)
        assert not generator.step(64).emitted


def connections(url: str) -> int:
    """Counts the server's connections from clients that haven't closed them (ESTABLISHED)."""
    port = int(url.rpartition(":")[2])
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = (line.split() for line in lines)
    return sum(int(row[1].rpartition(":")[2], 16) == port and row[3] == "01" for row in rows)


def test_a_server_that_fails_is_an_error_of_each_sequence(installed: Path) -> None:
    with (
        mock_server.running(installed, fail_after_requests=0) as url,
        closing(upstream(url, "m")) as generator,
    ):
        [done] = run(generator, [sequence(generator, chat("hello"))])
    assert "fail_after_requests" in str(done.error)
