"""`millrace model check` of models that generate: their memory plan, and their rates."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ops.cli.main import main
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


def check(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["model", "check", *map(str, arguments)])


def test_a_plan_tells_what_fits_and_loads_nothing(models: Path) -> None:
    done = check("tiny", "--file", models, "--plan", "--memory-mb", "2000")
    assert done.exit_code == 0, done.output
    assert "of 2,000 MiB that are free" in done.output
    assert "1024 tokens of 256 bytes" in done.output  # 4 sequences of 256
    assert "sequences at a time, by their tokens: 4 of 256" in done.output
    assert "more adapters of rank 16" in done.output
    assert "MiB  4 slots" in done.output
    assert "loaded in" not in done.output


def test_a_model_that_does_not_fit_is_a_failure(models: Path) -> None:
    done = check("tiny", "--file", models, "--plan", "--memory-mb", "100", "--json")
    assert done.exit_code == 1
    plan = json.loads(done.output)["plan"]
    assert (plan["fits"], plan["available_mb"]) == (False, 100.0)


def test_a_model_that_is_loaded_shows_its_rates(models: Path) -> None:
    done = check("talk", "--file", models)
    assert done.exit_code == 0, done.output
    assert "first answer: Tell me about the mills" in done.output
    assert "16 streams" in done.output
