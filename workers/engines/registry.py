"""From a model's entry to the engine that runs it."""

import os
from importlib import import_module

from jobs.registry import Model
from workers.engines.protocol import Engine

_FACTORIES = {
    "echo": "workers.engines.echo:Echo",
    "function": "workers.engines.function:FunctionEngine",
    "minilm": "workers.engines.minilm:MiniLM",
    "encoder": "workers.engines.encoder:RandomEncoder",
    "python": "workers.engines.python:PythonCode",
    "torch": "workers.engines.torch_module:TorchModule",
    "huggingface": "workers.engines.huggingface:HuggingFace",
}
_ON_TORCH = {"minilm", "encoder", "torch", "huggingface"}


def load(model: Model, device: str) -> Engine:
    """Creates the engine, with the model's options. device: a torch device, or "" to choose."""
    module, _, name = _FACTORIES[model.engine].partition(":")
    factory = getattr(import_module(module), name)
    options = dict(model.options)
    if model.engine in _ON_TORCH:
        options.setdefault("device", device or None)
        # Launches side by side on their own cores do more than one spread over all of them.
        options.setdefault("threads", max(1, (os.cpu_count() or 1) // model.limits.in_flight))
    if model.engine == "huggingface":
        options["task"] = model.does
    if model.engine == "python":
        options["text_only"] = model.kind.text_only
    engine: Engine = factory(**options)
    return engine
