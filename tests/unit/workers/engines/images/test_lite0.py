"""EfficientNet-Lite0: fetched once, converted, and equal to what its own package answers."""

import json
import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tests.unit.workers.engines.images.record_golden import RECORDED, image
from workers.engines.images import conversion, lite0
from workers.engines.images.decoding import decode
from workers.engines.images.efficientnet import Conv, EfficientNetLite0

pytestmark = pytest.mark.heavy

Loaded = tuple[EfficientNetLite0, list[str]]
GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


@pytest.mark.usefixtures("no_index")
def test_without_the_index_it_says_what_is_missing_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"pytorch-model==0\.1\.0 comes from the package index"):
        lite0.folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["efficientnet-lite0.lock"]


def packaged(network: EfficientNetLite0) -> Iterator[tuple[str, Tensor]]:
    """Random weights under the names of the package: convolutions without bias, batch norms."""
    numbers = torch.Generator().manual_seed(0)

    def conv(theirs: str, norm: str, ours: Conv) -> Iterator[tuple[str, Tensor]]:
        channels = ours.out_channels
        yield f"{theirs}.weight", torch.randn(ours.weight.shape, generator=numbers)
        for name in ("weight", "bias", "running_mean"):
            yield f"{norm}.{name}", torch.randn(channels, generator=numbers)
        yield f"{norm}.running_var", torch.rand(channels, generator=numbers) + 0.1

    yield from conv("_conv_stem", "_bn0", network.stem)
    for n, block in enumerate(network.blocks):
        if block.expand is not None:
            yield from conv(f"_blocks.{n}._expand_conv", f"_blocks.{n}._bn0", block.expand)
        yield from conv(f"_blocks.{n}._depthwise_conv", f"_blocks.{n}._bn1", block.depthwise)
        yield from conv(f"_blocks.{n}._project_conv", f"_blocks.{n}._bn2", block.project)
    yield from conv("_conv_head", "_bn1", network.head)
    yield "_fc.weight", torch.randn(network.classifier.weight.shape, generator=numbers)
    yield "_fc.bias", torch.randn(1000, generator=numbers)


def test_a_batch_norm_is_folded_into_the_convolution_before_it() -> None:
    network = EfficientNetLite0()
    state = dict(packaged(network))
    folded = dict(conversion.folded(state))
    network.load_state_dict(folded)  # strict: every name, every shape
    x = torch.randn(2, 32, 20, 20)
    norms = [state[f"_blocks.0._bn1.{name}"] for name in ("running_mean", "running_var")]
    affine = [state[f"_blocks.0._bn1.{name}"] for name in ("weight", "bias")]
    plain = F.conv2d(x, state["_blocks.0._depthwise_conv.weight"], padding=1, groups=32)
    expected = F.batch_norm(plain, *norms, *affine, eps=1e-3)
    with torch.inference_mode():
        found = network.blocks[0].depthwise(x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    """The model, from a cache that outlives the tests; fetched where it isn't there."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PIP_NO_INDEX")
        try:
            return lite0.load(torch.device("cpu"), Path(base).expanduser() / "millrace")
        except RuntimeError as error:
            pytest.skip(f"the model is not here: {error}")


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda one: "x".join(map(str, one["shape"])))
def test_logits_are_those_of_the_package(loaded: Loaded, golden: Mapping[str, Any]) -> None:
    pixels = torch.from_numpy(image(*golden["shape"]))[None]
    with torch.inference_mode():
        [logits] = loaded[0].logits(pixels)
    assert logits[:RECORDED].tolist() == pytest.approx(golden["logits"], abs=1e-3)
    assert logits.argsort(descending=True)[:5].tolist() == golden["best"]


@pytest.mark.parametrize(
    ("package", "file", "label"),
    [
        ("ops", "docs/dashboard/overview-light.png", "website"),
        ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg", "military uniform"),
        ("sklearn", "datasets/images/flower.jpg", "daisy"),
        ("sklearn", "datasets/images/china.jpg", "bell tower"),
    ],
)
def test_photos_have_their_labels(loaded: Loaded, package: str, file: str, label: str) -> None:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    network, labels = loaded
    pixels = decode((Path(spec.submodule_search_locations[0]) / file).read_bytes())
    with torch.inference_mode():
        [scores] = network(torch.from_numpy(pixels[None]))
    assert len(labels) == 1000
    assert labels[scores.argmax()] == label
