"""Engine `image_classifier`: launches of any shapes, with a network whose weights are random."""

from typing import Any

import numpy as np
import orjson
import pytest
import torch
from torch import Tensor, nn

from jobs.models.model import Limits, Model
from tests.support.models import images
from workers.device.prepare import prepare
from workers.engines import registry
from workers.engines.classifier import RandomClassifier
from workers.engines.images.engine import ImageClassifier
from workers.engines.protocol import DeviceFailed, Permanent
from workers.items.results import encode
from workers.scheduler.scheduler import Scheduler

pytestmark = pytest.mark.heavy

HERE = {"module": __name__, "device": "cpu"}
RANDOM = {"module": "workers.engines.classifier", "build": "RandomClassifier", "device": "cpu"}
MODEL = Model("m", "1", "image_classifier", options=RANDOM, limits=Limits(max_batch=8))
SIZES = [(80, 60), (60, 80), (100, 100), (640, 480), (90, 160), (300, 300)]


def mean_and_rest(scale: float = 1.0) -> nn.Module:
    """A network of two classes: how red an image is, and how far from that."""

    class MeanRed(nn.Module):
        def forward(self, pixels: Tensor) -> Tensor:
            red = pixels[..., 0].float().mean((1, 2)) / 255 * scale
            return torch.stack([red, 1 - red], 1)

    return MeanRed()


class Broken(nn.Module):
    """Returns NaN the second time."""

    count = 0

    def forward(self, pixels: Tensor) -> Tensor:
        self.count += 1
        return torch.full((len(pixels), 2), 0.5 if self.count < 2 else float("nan"))


def flat() -> nn.Module:
    """A network that returns no row of classes."""
    return nn.Flatten(0)


def png(*size: int) -> str:
    return images.encoded(images.saved(images.picture(*size)))


def answers(engine: ImageClassifier, inputs: list[str], **params: Any) -> list[Any]:
    batch = [one.data for one in engine.prepare(inputs, params)]
    return [orjson.loads(encode(output)) for output in engine.run(batch, params)]


def red(share: float) -> str:
    image = images.Image.new("RGB", (64, 64), (round(255 * share), 0, 0))
    return images.encoded(images.saved(image))


def test_products_may_be_computed_in_16_bit() -> None:
    whole, half = (
        answers(ImageClassifier(**RANDOM, autocast=kind), [png(80, 60)])[0]
        for kind in ("", "bfloat16")
    )
    assert half != whole
    scores = {pair["label"]: pair["score"] for pair in whole}
    near = [abs(pair["score"] - scores.get(pair["label"], pair["score"])) for pair in half]
    assert max(near) < 0.05


def test_a_launch_of_several_shapes_has_the_answers_and_scores_of_each_alone() -> None:
    engine = ImageClassifier(**RANDOM)
    inputs = [png(*size) for size in SIZES]
    alone = [answers(engine, [one])[0] for one in inputs]
    for one, other in zip(answers(engine, inputs), alone, strict=True):
        assert [pair["label"] for pair in one] == [pair["label"] for pair in other]
        assert np.allclose([p["score"] for p in one], [p["score"] for p in other], atol=1e-6)
    assert answers(engine, inputs[::-1])[0][0]["label"] == alone[-1][0]["label"]
    engine = ImageClassifier(**RANDOM)
    [prepared] = engine.prepare([png(80, 60)], {})
    with torch.inference_mode():
        expected = RandomClassifier().eval()(torch.from_numpy(prepared.data[None]))[0]
    [answer] = answers(engine, [png(80, 60)], top_k=10)
    assert [pair["score"] for pair in answer] == sorted(expected.tolist(), reverse=True)
    assert [int(pair["label"]) for pair in answer] == expected.argsort(descending=True).tolist()


def test_labels_come_best_first_and_so_many_as_are_wanted() -> None:
    engine = ImageClassifier(**HERE, build="mean_and_rest", labels=["red", "not red"])
    first, second = answers(engine, [red(0.8), red(0.2)])
    assert [pair["label"] for pair in first] == ["red", "not red"]
    assert [pair["label"] for pair in second] == ["not red", "red"]
    assert first[0]["score"] == pytest.approx(0.8, abs=0.01)
    assert answers(engine, [red(0.8)], top_k=1) == [first[:1]]
    assert len(answers(ImageClassifier(**RANDOM), [red(1)])[0]) == 5


def test_a_network_must_return_a_labelled_row_of_classes_for_each_image() -> None:
    with pytest.raises(Permanent, match=r"must return probabilities \[1, classes\]"):
        answers(ImageClassifier(**HERE, build="flat"), [red(1)])
    engine = ImageClassifier(**HERE, build="mean_and_rest", labels=["red"])
    with pytest.raises(Permanent, match="there are 1 labels for 2 classes"):
        answers(engine, [red(1)])


def test_the_probe_finds_probabilities_that_are_none() -> None:
    ImageClassifier(**RANDOM).probe()
    engine = ImageClassifier(**HERE, build="Broken")
    engine.probe()
    with pytest.raises(DeviceFailed, match="the probabilities of a known image are nan off"):
        engine.probe()
    with pytest.raises(DeviceFailed, match=r"their sum is 0\.\d+$"):
        ImageClassifier(**HERE, build="Halves").probe()


class Halves(nn.Module):
    """Returns what sums up to 0.6."""

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.full((len(pixels), 2), 0.3)


def test_samples_have_shapes_of_their_own_and_sizes_as_the_api_knows_them() -> None:
    engine = registry.load_engine(MODEL, "cpu")
    entries = prepare(MODEL, engine, engine.samples(), {})
    buckets = [entry.bucket for entry in entries]
    assert len(set(buckets)) == 3
    assert (min(buckets), max(buckets)) == (MODEL.buckets[0], MODEL.buckets[-1])
    assert engine.memory_mb() > 0
    engine.close()
    engine = ImageClassifier(**RANDOM)
    inputs = [png(*size) for size in SIZES]
    sizes = [one.size for one in engine.prepare(inputs, {})]
    assert sizes == [MODEL.size(value, {}) for value in inputs]
    assert set(sizes) <= set(MODEL.buckets)


def test_a_launch_of_calls_takes_no_item_of_another_shape() -> None:
    scheduler, shapes = Scheduler(MODEL), [png(80, 60), png(60, 80), png(64, 64)]
    wide, tall, square = prepare(MODEL, ImageClassifier(**RANDOM), shapes, {})
    assert len({wide.lane, tall.lane, square.lane}) == 3
    scheduler.items.put([wide, tall, square])
    for entry in (wide, square, tall):
        assert scheduler.items.take_fill(entry.lane, 8) == [entry]
