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


@pytest.fixture(scope="module", params=["echo", "batchstring", "minilm"])
def model(request: pytest.FixtureRequest) -> Model:
    return SAMPLES.resolve(request.param)


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
    assert [p.size for p in prepare(engine, TEXTS)] == [model.kind.size(text) for text in TEXTS]
    assert all(prepared.size >= 1 for prepared in prepare(engine, TEXTS))


def test_no_input_is_larger_than_the_largest_bucket(engine: Engine, model: Model) -> None:
    [prepared] = prepare(engine, ["word " * 10_000])
    assert not model.kind.buckets or prepared.size <= model.kind.buckets[-1]


def test_samples_can_be_prepared_and_run(engine: Engine, model: Model) -> None:
    for sample in engine.samples():
        assert len(outputs(engine, [sample] * 2)) == 2


def test_many_threads_can_prepare_at_once(engine: Engine) -> None:
    inputs = [f"text number {n} " * (n % 20 + 1) for n in range(100)]
    expected = prepare(engine, inputs)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: prepare(engine, inputs), range(16)))
    for answers in found:
        assert [answer.size for answer in answers] == [answer.size for answer in expected]
        for answer, wanted in zip(answers, expected, strict=True):
            assert np.array_equal(answer.data, wanted.data)
