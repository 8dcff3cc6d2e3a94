"""What every engine does: one suite over all of them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import orjson
import pytest

from jobs.registry import SAMPLES, Model
from workers.engines import registry
from workers.engines.protocol import Engine, InvalidInput, Prepared
from workers.recorder import encode

TEXTS = ["a cat", "", "Grüße aus Köln", "a " * 120, "line\nbreak", "猫"]
NO_TEXTS = [None, True, 7, 1.5, ["cat"], {"text": "cat"}]


TINY = {"hidden": 32, "layers": 2, "heads": 4, "intermediate": 64, "threads": 1}
MODELS = {
    **{model.name: model for model in SAMPLES if model.does != "tensors"},
    "minilm-padded": Model("minilm", "2", "minilm", options={"layout": "padded"}),
    "encoder": Model("encoder", "1", "encoder", options=TINY),
    "encoder-padded": Model("encoder", "2", "encoder", options={**TINY, "layout": "padded"}),
    "encoder-long": Model("encoder", "3", "encoder", options={**TINY, "max_tokens": 512}),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return MODELS[request.param]


@pytest.fixture(scope="module")
def engine(model: Model) -> Engine:
    return registry.load(model, "cpu")


def prepare(engine: Engine, inputs: Sequence[Any]) -> list[Prepared]:
    answers = engine.prepare(inputs, {})
    assert all(isinstance(answer, Prepared) for answer in answers)
    return [answer for answer in answers if isinstance(answer, Prepared)]


def outputs(engine: Engine, inputs: Sequence[Any]) -> list[Any]:
    """What a client would read."""
    batch = [prepared.data for prepared in prepare(engine, inputs)]
    return [orjson.loads(encode(output)) for output in engine.run(batch, {})]


def test_each_input_has_one_output_that_can_be_stored(engine: Engine) -> None:
    assert len(outputs(engine, TEXTS)) == len(TEXTS)


def test_outputs_keep_the_order_of_the_inputs(engine: Engine) -> None:
    forth, back = outputs(engine, TEXTS), outputs(engine, TEXTS[::-1])[::-1]
    for one, other in zip(forth, back, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


def test_different_inputs_have_different_outputs(engine: Engine) -> None:
    one, other = outputs(engine, ["a cat", "a dog"])
    assert one != other


def test_a_launch_of_one_has_one_output(engine: Engine) -> None:
    assert len(outputs(engine, ["alone"])) == 1


@pytest.mark.parametrize("value", NO_TEXTS)
def test_only_an_engine_of_texts_refuses_other_inputs_and_in_their_place(
    engine: Engine, model: Model, value: Any
) -> None:
    first, middle, last = engine.prepare(["a", value, "b"], {})
    assert isinstance(first, Prepared)
    assert isinstance(middle, InvalidInput) == model.kind.text_only
    assert isinstance(last, Prepared)


def test_nothing_to_prepare_gives_nothing(engine: Engine) -> None:
    assert engine.prepare([], {}) == []


def test_sizes_are_those_by_which_the_api_chooses_a_calls_lane(
    engine: Engine, model: Model
) -> None:
    texts = [*TEXTS, "word " * 1000]
    for params in ({}, {"truncate": 7}) if "truncate" in model.kind.params else ({},):
        sizes = [p.size for p in engine.prepare(texts, params) if isinstance(p, Prepared)]
        assert sizes == [model.size(text, params) for text in texts]
        assert all(size >= 1 for size in sizes)


def test_no_input_is_larger_than_the_largest_bucket(engine: Engine, model: Model) -> None:
    [prepared] = prepare(engine, ["word " * 10_000])
    assert not model.buckets or prepared.size <= model.buckets[-1]


def test_samples_can_be_prepared_and_run(engine: Engine, model: Model) -> None:
    for sample in engine.samples():
        assert len(outputs(engine, [sample] * 2)) == 2


def test_it_says_how_much_memory_its_weights_hold(engine: Engine, model: Model) -> None:
    assert (engine.memory_mb() > 1) == (model.kind.unit == "tokens")


def test_it_can_be_closed_and_loaded_again(model: Model) -> None:
    first = outputs(once := registry.load(model, "cpu"), ["a cat"])
    once.close()
    assert outputs(registry.load(model, "cpu"), ["a cat"]) == first


def test_launches_can_run_side_by_side(engine: Engine) -> None:
    batches = [[f"text {n} " * (n % 7 + k) for n in range(9)] for k in range(1, 5)]
    expected = [outputs(engine, batch) for batch in batches]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda batch: outputs(engine, batch), batches))
    for batch, wanted in zip(found, expected, strict=True):
        for one, other in zip(batch, wanted, strict=True):
            assert one == pytest.approx(other, abs=1e-5)


def test_many_threads_can_prepare_at_once(engine: Engine) -> None:
    inputs = [f"text number {n} " * (n % 20 + 1) for n in range(100)]
    expected = prepare(engine, inputs)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: prepare(engine, inputs), range(16)))
    for answers in found:
        assert [answer.size for answer in answers] == [answer.size for answer in expected]
        for answer, wanted in zip(answers, expected, strict=True):
            assert np.array_equal(answer.data, wanted.data)
