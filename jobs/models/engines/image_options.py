"""Engine `image_classifier`: images to labels; its options are checked without torch."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from jobs.artifacts.declared import SAFE
from jobs.models.engines.custom_engines import Autocast, FolderPath, PythonOptions, Threads
from jobs.models.engines.engine_spec import EngineOptions, EngineSpec, EntryContext, Param
from jobs.models.inputs.images import header
from jobs.models.inputs.images.shapes import BUCKETS


class ImageOptions(PythonOptions):
    """Options of the engine `image_classifier`."""

    requires: ClassVar = {
        "file_sha256": ("file",),
        "arguments": ("build",),
        "weights": ("build", "sha256"),
        "sha256": ("weights",),
    }
    files: ClassVar = ("file", "weights")
    digests: ClassVar = {"file_sha256": ("file", ""), "sha256": ("weights", "")}

    builtin: Literal["", "efficientnet-lite0"] = ""  #: a model that is fetched
    build: str = ""  #: class or function that makes the network
    arguments: dict[str, Any] = Field({})
    weights: FolderPath = ""
    sha256: str = ""  #: of the weights
    labels: list[str] = Field([])  #: names of the classes, in order; []: their numbers
    autocast: Autocast = ""
    device: str = ""  #: of torch, as cpu or cuda:1
    threads: Threads = 1

    def conflicts(self, entry: EntryContext | None) -> Iterator[str]:
        """Implements `EngineOptions.conflicts`."""
        yield from self.one_of("builtin", "file", "module")
        if not self.builtin and not self.build:
            yield "build is missing: the class or function that makes the network"
        if self.builtin and (more := {"build", "labels"} & self.model_fields_set):
            yield f"{' and '.join(sorted(more))}: {self.builtin} has its own"
        if self.weights and not self.weights.endswith(SAFE):
            yield f"weights is {self.weights!r}; only {SAFE} is loaded"
        yield from EngineOptions.conflicts(self, entry)


_SPEC = EngineSpec(
    False,
    "pixels",
    {"top_k": Param.whole("labels", 1, 1_000_000)},
    header.size,
    BUCKETS,
    "image_classification",
    input_problem=header.refuse,
    longest=lambda options: BUCKETS[-1],
    pads=lambda options: True,
    shapes=True,
    options=ImageOptions,
    pooled=True,
    takes_bytes=True,
)

IMAGE_CLASSIFIER = replace(_SPEC, by_task={"image_classification": _SPEC})
