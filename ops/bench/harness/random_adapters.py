"""Adapters (LoRA) of random matrices in PEFT's layout, and the models that they make merged."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from jobs.models.adapters import CONFIG, WEIGHTS, Adapter

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def save(
    folder: Path,
    shapes: Mapping[str, tuple[int, int]],
    *,
    seed: int,
    rank: int = 8,
    size: float = 0.2,
    **config: Any,
) -> Path:
    """Saves an adapter of some layers, by name their sizes (in, out); returns the folder."""
    import torch
    from safetensors.torch import save_file

    generator, tensors = torch.Generator().manual_seed(seed), {}
    for name, (size_in, size_out) in shapes.items():
        for which, shape in (("A", (rank, size_in)), ("B", (size_out, rank))):
            matrix = torch.randn(shape, generator=generator) * size
            tensors[f"base_model.model.{name}.lora_{which}.weight"] = matrix
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / WEIGHTS)
    targets = sorted({name.rpartition(".")[2] for name in shapes})
    written = {"peft_type": "LORA", "r": rank, "lora_alpha": 16, "target_modules": targets}
    (folder / CONFIG).write_text(
        json.dumps(written | {"bias": "none", "use_rslora": False} | config)
    )
    return folder


def declared(folder: Path, name: str = "", **fields: Any) -> Adapter:
    """Returns the declaration of a saved adapter."""
    digest = sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    return Adapter(**{"name": name or folder.name, "path": str(folder), "sha256": digest} | fields)


def merged(weights: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Returns a state dict with W + (alpha / r) B A in place of each W that an adapter changes."""
    from safetensors.torch import load_file

    config, found = json.loads((folder / CONFIG).read_text()), dict(weights)
    root = config["r"] ** 0.5 if config["use_rslora"] else config["r"]
    tensors = load_file(folder / WEIGHTS)
    for key, a in tensors.items():
        if key.endswith("lora_A.weight"):
            name = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            b = tensors[key.replace("lora_A", "lora_B")]
            found[f"{name}.weight"] = found[f"{name}.weight"] + config["lora_alpha"] / root * b @ a
    return found


def llama_shapes(folder: Path, names: Sequence[str] = ATTENTION) -> dict[str, tuple[int, int]]:
    """Returns the sizes of a saved Llama's layers with these last names."""
    from safetensors.torch import load_file

    return {
        key.removesuffix(".weight"): (weight.shape[1], weight.shape[0])
        for key, weight in load_file(folder / "model.safetensors").items()
        if key.removesuffix(".weight").rpartition(".")[2] in names
    }


def merge_llama(base: Path, adapter: Path, folder: Path) -> Path:
    """Saves the model that an adapter makes of a saved Llama; returns its folder."""
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(base, folder)
    weights = merged(load_file(base / "model.safetensors"), adapter)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def weights_sha256(folder: Path) -> str:
    """Returns the checksum of a saved model's weights."""
    return sha256((folder / "model.safetensors").read_bytes()).hexdigest()
