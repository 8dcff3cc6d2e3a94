"""Torch networks of operators, with weights from safetensors and nothing from a pickle."""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import torch
from safetensors.torch import load_file, load_model
from torch import Tensor, nn
from torch._export.serde.serialize import SerializedArtifact, deserialize
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass

from jobs.artifacts import declared as artifacts
from workers.engines.common.user_code import Faulty, Source

Shape = tuple[int | None, ...]
"""Shape of one item, without the batch; None: any length."""

_GRAPH = "/models/model.json"


@dataclass(frozen=True, slots=True)
class Network:
    """Network on its device."""

    forward: nn.Module  #: maps [rows, …] to [rows, …]
    shape: Shape | None = None  #: of one item, if known
    dtype: torch.dtype | None = None  #: of its input, if known


def built(
    place: torch.device,
    source: Source,
    build: str,
    arguments: Mapping[str, Any],
    weights: str,
    sha256: str,
) -> Network:
    """Creates a network with the class or function `build` of the source, and loads its weights if
    given. Raises Faulty."""
    made = source.need(build)(**arguments)
    if not isinstance(made, nn.Module):
        raise Faulty(f"{build} made a {type(made).__name__}, not a torch.nn.Module")
    if weights:
        load_model(made, artifacts.weights(Path(weights), sha256))
    if place.type == "cuda":  # whose convolutions are faster so; other tensors stay as they are
        made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Network(made.to(place).eval())


def exported(
    place: torch.device, export: str, export_sha256: str, weights: str, sha256: str
) -> Network:
    """Loads an archive of torch.export.save, with weights and constants from safetensors:
    {**program.state_dict, **program.constants}.

    torch.export.load would unpickle the archive's sample inputs. A graph may name any function of
    torch, so only an archive with the declared checksum is read. Raises Faulty.
    """
    path = artifacts.verified(Path(export), export_sha256)
    graph = _graph(path)
    needed = _needed(path, graph)
    tensors = load_file(artifacts.weights(Path(weights), sha256))
    if missing := [name for name in needed if name not in tensors]:
        raise Faulty(f"{weights} lacks {', '.join(missing)}: save state_dict and constants")
    state: dict[str, Tensor] = {}
    constants: dict[str, Tensor] = {}
    for name, kind in needed.items():
        if kind == "parameter":
            state[name] = nn.Parameter(tensors[name], requires_grad=False)
        else:
            (state if kind == "buffer" else constants)[name] = tensors[name]
    held: tuple[Any, Any, bytes] = state, constants, b""  # in place of what torch would unpickle
    program = deserialize(SerializedArtifact(graph, *held))
    shape, dtype = _input(path, program)
    return Network(move_to_device_pass(program, place).module(), shape, dtype)


def _graph(path: Path) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(_GRAPH)]
            return archive.read(names[0])
    except (zipfile.BadZipFile, IndexError) as error:
        raise Faulty(f"{path} is no archive of torch.export.save") from error


def _needed(path: Path, graph: bytes) -> dict[str, str]:
    """Returns the kind (parameter, buffer or constant) of each tensor that the graph lacks."""
    needed = {}
    for spec in orjson.loads(graph)["graph_module"]["signature"]["input_specs"]:
        [(kind, tensor)] = spec.items()
        if kind in ("parameter", "buffer"):
            needed[tensor[f"{kind}_name"]] = kind if tensor.get("persistent", True) else "constant"
        elif kind == "tensor_constant":
            needed[tensor["tensor_constant_name"]] = "constant"
        elif kind != "user_input":
            raise Faulty(f"{path} holds a {kind}, which only a pickle could bring back")
    return needed


def _input(path: Path, program: ExportedProgram) -> tuple[Shape, torch.dtype]:
    """Returns shape of one item and type of the one tensor that the program takes."""
    names = program.graph_signature.user_inputs
    takes = [node.meta["val"] for node in program.graph.nodes if node.name in names]
    if len(takes) != 1 or not isinstance(takes[0], Tensor) or takes[0].dim() < 1:
        raise Faulty(f"{path} takes {len(takes)} inputs; it must take one tensor, [rows, …]")
    rows, *shape = takes[0].shape
    if isinstance(rows, int):
        raise Faulty(
            f"{path} takes launches of {rows} alone: export it with a batch of any size, "
            "dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)"
        )
    return tuple(n if isinstance(n, int) else None for n in shape), takes[0].dtype
