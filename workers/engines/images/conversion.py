"""Weights of EfficientNet-Lite0 as its PyTorch package saves them: batch norms are folded into the
convolutions before them, and names become those of our network. Beside them, names of classes."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

WEIGHTS, LABELS = "model.safetensors", "labels.json"
_EPSILON = 1e-3  # of the batch norms
_STAGES = {"_expand_conv": "expand", "_depthwise_conv": "depthwise", "_project_conv": "project"}


def convert(pickled: Path, names: Path, folder: Path) -> None:
    """Writes weights and labels to a new folder. pickled: file of torch, of which tensors alone are
    read; names: a list in JSON."""
    state: Mapping[str, Tensor] = torch.load(pickled, map_location="cpu", weights_only=True)
    folder.mkdir()
    save_file(dict(folded(state)), folder / WEIGHTS)
    shutil.copyfile(names, folder / LABELS)


def folded(state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights of our network, float32."""
    yield from _conv(state, "_conv_stem", "_bn0", "stem")
    count = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("_blocks."))
    for n in range(count):
        block = f"_blocks.{n}."
        convs = [name for name in _STAGES if f"{block}{name}.weight" in state]
        first = 3 - len(convs)  # a block that doesn't expand has no _bn0
        for number, name in enumerate(convs, first):
            yield from _conv(
                state, f"{block}{name}", f"{block}_bn{number}", f"blocks.{n}.{_STAGES[name]}"
            )
    yield from _conv(state, "_conv_head", "_bn1", "head")
    yield "classifier.weight", state["_fc.weight"].float().contiguous()
    yield "classifier.bias", state["_fc.bias"].float().contiguous()


def _conv(
    state: Mapping[str, Tensor], conv: str, norm: str, ours: str
) -> Iterator[tuple[str, Tensor]]:
    gain, shift, mean, variance = (
        state[f"{norm}.{name}"].double()
        for name in ("weight", "bias", "running_mean", "running_var")
    )
    scale = gain / (variance + _EPSILON).sqrt()
    weight = state[f"{conv}.weight"].double() * scale[:, None, None, None]
    yield f"{ours}.weight", weight.float().contiguous()
    yield f"{ours}.bias", (shift - mean * scale).float()
