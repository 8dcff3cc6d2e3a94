"""What every engine does: one suite over all of them."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from jobs.intake import validation
from jobs.models import models_file
from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Model
from tests.support.cases import each
from workers.engines import registry
from workers.engines.protocol import Engine, InvalidInput, Prepared
from workers.items.results import encode

TEXTS = ["a cat", "", "Grüße aus Köln", "a " * 120, "line\nbreak", "猫"]
NO_TEXTS = [None, True, 7, 1.5, ["cat"], {"text": "cat"}]


TINY = {"hidden": 32, "layers": 2, "heads": 4, "intermediate": 64, "threads": 1}
MODELS = {
    **{
        model.name: model
        for model in SAMPLES
        if model.effective_task not in ("tensors", "image_classification")
        and not model.spec.generates
    },
    "minilm-padded": Model("minilm", "2", "minilm", options={"layout": "padded"}),
    "encoder": Model("encoder", "1", "encoder", options=TINY),
    "encoder-padded": Model("encoder", "2", "encoder", options={**TINY, "layout": "padded"}),
    "encoder-long": Model("encoder", "3", "encoder", options={**TINY, "max_tokens": 512}),
}
OWN = ["python", "python-text", "torch-text", "classification", "tokens", "embedding", "reranking"]
ON_TORCH = {"minilm", "encoder", "torch", "huggingface"}


PARAMS = [
    pytest.param(name, marks=[pytest.mark.heavy] * (name in OWN or MODELS[name].engine in ON_TORCH))
    for name in [*MODELS, *OWN]
]


@pytest.fixture(scope="module", params=PARAMS)
def model(request: pytest.FixtureRequest) -> Model:
    if request.param in MODELS:
        return MODELS[request.param]
    path: Path = request.getfixturevalue("own_models")
    found = models_file.load(path).resolve(request.param)
    if found.engine == "huggingface":
        found = replace(found, options={**found.options, "on_too_long": "truncate"})
    return found


def asked(model: Model, value: Any) -> Any:
    """An input that the model takes, where it is a text."""
    if model.effective_task == "reranking" and isinstance(value, str):
        return {"query": "cat", "documents": [value, "a dog"]}
    return value


class OfTexts:
    """An engine that is asked in its own way."""

    def __init__(self, model: Model, engine: Engine) -> None:
        self._model, self._engine = model, engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def prepare(
        self, inputs: Sequence[Any], params: Mapping[str, Any]
    ) -> list[Prepared | InvalidInput]:
        return self._engine.prepare([asked(self._model, value) for value in inputs], params)


def load(model: Model) -> Engine:
    engine: Any = OfTexts(model, registry.load(model, "cpu"))
    return engine


@pytest.fixture(scope="module")
def engine(model: Model) -> Engine:
    return load(model)


def same(one: Any, other: Any) -> bool:
    """But for what arithmetic in another order makes of numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == (pytest.approx(other, abs=1e-5) if isinstance(one, float) else other))


def prepare(engine: Engine, inputs: Sequence[Any]) -> list[Prepared]:
    answers = engine.prepare(inputs, {})
    assert all(isinstance(answer, Prepared) for answer in answers)
    return answers


def outputs(engine: Engine, inputs: Sequence[Any]) -> list[Any]:
    """What a client would read."""
    batch = [prepared.data for prepared in prepare(engine, inputs)]
    return [orjson.loads(encode(output)) for output in engine.run(batch, {})]


def test_each_input_has_an_output_of_its_own_in_its_place_that_can_be_stored(
    engine: Engine,
) -> None:
    forth, back = outputs(engine, TEXTS), outputs(engine, TEXTS[::-1])[::-1]
    assert len(forth) == len(TEXTS)
    assert same(forth, back)
    assert len(outputs(engine, ["alone"])) == 1
    one, other = outputs(engine, ["a cat", "a dog"])
    assert one != other


def test_only_an_engine_of_texts_refuses_other_inputs_and_in_their_place(
    engine: Engine, model: Model
) -> None:
    for value, case in each(NO_TEXTS):
        with case:
            first, middle, last = engine.prepare(["a", value, "b"], {})
            assert isinstance(first, Prepared)
            # A list never comes here.
            refused = validation.refuse_input(model, value) or model.split_inputs(value)
            assert isinstance(middle, InvalidInput) == bool(refused)
            assert isinstance(last, Prepared)


def test_sizes_are_those_by_which_the_api_chooses_a_calls_lane_up_to_the_largest_bucket(
    engine: Engine, model: Model
) -> None:
    texts = [*TEXTS, "word " * 1000]
    for params in ({}, {"truncate": 7}) if "truncate" in model.spec.params else ({},):
        sizes = [prepared.size for prepared in engine.prepare(texts, params)]
        assert sizes == [model.size(asked(model, text), params) for text in texts]
        assert all(size >= 1 for size in sizes)
    assert engine.prepare([], {}) == []
    [prepared] = prepare(engine, ["word " * 10_000])
    assert not model.buckets or prepared.size <= model.buckets[-1]


def test_it_has_samples_that_run_and_says_how_much_memory_its_weights_hold(
    engine: Engine, model: Model
) -> None:
    for sample in engine.samples():
        assert len(outputs(engine, [sample] * 2)) == 2
    assert (engine.memory_mb() > 0) == (model.engine in ON_TORCH)


def test_it_can_be_closed_and_loaded_again(model: Model) -> None:
    first = outputs(once := load(model), ["a cat"])
    once.close()
    assert outputs(load(model), ["a cat"]) == first


def test_launches_can_run_side_by_side(engine: Engine) -> None:
    batches = [[f"text {n} " * (n % 7 + k) for n in range(9)] for k in range(1, 5)]
    expected = [outputs(engine, batch) for batch in batches]
    with ThreadPoolExecutor(2) as pool:
        assert same(list(pool.map(lambda batch: outputs(engine, batch), batches)), expected)


def test_many_threads_can_prepare_at_once(engine: Engine) -> None:
    inputs = [f"text number {n} " * (n % 20 + 1) for n in range(100)]
    expected = prepare(engine, inputs)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: prepare(engine, inputs), range(16)))
    for answers in found:
        assert [answer.size for answer in answers] == [answer.size for answer in expected]
        assert [repr(answer.data) for answer in answers] == [repr(it.data) for it in expected]
