"""Demands of vLLM's tests of its HTTP API, on a model of random weights: each check passes, or is
known to differ, and the page says which."""

from collections.abc import Iterator

import httpx
import pytest

from ops.supervisor.platform import Platform
from tests.acceptance.compat.vllm.check import MODEL, Check
from tests.acceptance.compat.vllm.page import CHECKS, PAGE, page
from tests.support.generation import tiny_llama
from tests.support.platforms import GENERATING, Platforms

PLATFORM = GENERATING


@pytest.fixture(scope="module")
def platform(platforms: Platforms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder = tiny_llama.save(
        tmp_path_factory.mktemp("tiny"), with_tools=True, max_position_embeddings=4096
    )
    with platforms.shared(GENERATING, tiny_llama.entry(folder, name=MODEL)) as running:
        yield running


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_passes_unless_it_is_known_to_differ(http: httpx.Client, check: Check) -> None:
    if not check.differs:
        check.run(http)
        return
    with pytest.raises((AssertionError, LookupError, TypeError)):
        check.run(http)


def test_the_page_is_that_of_the_checks() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.acceptance.compat.vllm.page`"
    assert len({check.name for check in CHECKS}) == len(CHECKS)
