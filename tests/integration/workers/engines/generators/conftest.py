"""Generators under test, and the folder of a tiny model."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jobs.models.model import Model
from tests.support.generation import tiny_llama
from workers.engines.echo_chat import EchoChat
from workers.engines.generator import Generator
from workers.engines.transformers.engine import TransformersGenerator
from workers.engines.upstream.streaming.openai_generator import OpenAIGenerator


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny Llama."""
    return tiny_llama.save(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> Iterator[TransformersGenerator]:
    """Generator of the tiny Llama, which tests share: each leaves it without a sequence."""
    with closing(load_tiny(tiny_folder)) as generator:
        yield generator


def load_tiny(folder: Path, **options: object) -> TransformersGenerator:
    """Loads the tiny Llama, in small blocks and with patience for a busy machine."""
    given = {"block_tokens": 4, "sequences": 8, "max_step_s": 600, **options}
    return TransformersGenerator(**(tiny_llama.options(folder) | given))


@pytest.fixture(params=["transformers", "echo_chat", "openai"])
def generator(request: pytest.FixtureRequest) -> Iterator[Generator]:
    """Each generator that there is; the upstream one streams from a Millrace."""
    if request.param == "transformers":
        yield request.getfixturevalue("tiny")
        return
    if request.param == "echo_chat":
        made: Generator = EchoChat(context_tokens=256)
    else:
        made = upstream(request.getfixturevalue("platform").url, "echoes")
    yield made
    made.close()


def upstream(url: str, model: str, **options: object) -> OpenAIGenerator:
    """Loads the generator of a model at a server; its breaker never opens."""
    given = {"url": f"{url}/v1", "model": model, "stream": True, "timeout_s": 50, **options}
    return OpenAIGenerator(Model("ours", "1", "openai", options=given))
