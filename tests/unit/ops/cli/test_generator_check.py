"""`millrace model check` of models that generate: their memory plan, and their rates."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import run_millrace
from tests.support.generation import adapters, tiny_llama

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models file with the tiny Llama and an adapter, and with an engine that plans nothing."""
    folder = tiny_llama.save(tmp_path_factory.mktemp("tiny"))
    saved = adapters.save(folder / "legal", adapters.llama_shapes(folder), seed=1, rank=4)
    options = {**tiny_llama.options(folder), "cache_mb": 64, "sequences": 4}
    table = "\n".join(f"{name} = {json.dumps(value)}" for name, value in options.items())
    path = folder / "models.toml"
    head = '[[model]]\nname = "{0}"\nversion = "1"\nengine = "{1}"\n'
    tiny, talk = head.format("tiny", "transformers"), head.format("talk", "echo_chat")
    path.write_text(
        f"{tiny}[model.options]\n{table}\n{adapters.entry(adapters.declared(saved))}{talk}"
    )
    return path


def check(*arguments: str | Path, status: int = 0) -> str:
    return run_millrace("model", "check", *map(str, arguments), status=status).output


def test_a_plan_tells_what_fits_and_loads_nothing(models: Path) -> None:
    words = ("tiny", "--file", models, "--plan", "--memory-mb")
    said = check(*words, "2000")
    assert "of 2,000 MiB that are free" in said
    assert "1024 tokens of 256 bytes" in said  # 4 sequences of 256
    assert "sequences at a time, by their tokens: 4 of 256" in said
    assert "more adapters of rank 16" in said
    assert "MiB  4 slots" in said
    assert "loaded in" not in said
    plan = json.loads(check(*words, "100", "--json", status=1))["plan"]
    assert (plan["fits"], plan["available_mb"]) == (False, 100.0)


def test_a_model_that_is_loaded_shows_its_rates(models: Path) -> None:
    said = check("talk", "--file", models)
    assert "first answer: Tell me about the mills" in said
    assert "16 streams" in said
