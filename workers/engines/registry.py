"""Registry of engines: creates the engine of a model's entry."""

import os
from importlib import import_module

from jobs.models.engines import extras
from jobs.models.inputs.input_size import MAX_TOKENS
from jobs.models.inputs.tensor_inputs import most_rows
from jobs.models.model import Model
from workers.engines import cuda_uuid
from workers.engines.generator import Generator
from workers.engines.protocol import Engine, Preparer

_FACTORIES = {
    "echo": "workers.engines.echo:Echo",
    "echo_chat": "workers.engines.echo_chat:EchoChat",
    "function": "workers.engines.function:FunctionEngine",
    "minilm": "workers.engines.minilm:MiniLM",
    "encoder": "workers.engines.encoder:RandomEncoder",
    "http": "workers.engines.upstream.http_engine:HttpEngine",
    "openai": "workers.engines.upstream.openai_engine:OpenAIEngine",
    "openai_stream": "workers.engines.upstream.streaming.openai_generator:OpenAIGenerator",
    "python": "workers.engines.python:PythonCode",
    "torch": "workers.engines.torch_module:TorchModule",
    "huggingface": "workers.engines.huggingface:HuggingFace",
    "image_classifier": "workers.engines.images.engine:ImageClassifier",
    "transformers": "workers.engines.transformers.engine:TransformersGenerator",
    "server": "workers.engines.server.generator:ServerGenerator",
    "tensors": "workers.engines.tensors:TensorEngine",
}
_PREPARERS = {
    "image_classifier": "workers.engines.images.decoding:ImageDecoder",
    "minilm": "workers.engines.encoders.tokenize:Texts",
    "python": "workers.engines.python:PythonPreparation",
}
"""Preparation without torch and weights, by engine whose inputs workers of their own may prepare
(`EngineSpec.pooled`)."""
_ON_TORCH = {"minilm", "encoder", "torch", "huggingface", "image_classifier"}
ON_TORCH = frozenset(_ON_TORCH | {"tensors"})
"""Engines that load torch."""
_IN_A_CHILD = {"transformers"}  # which loads torch in its process
_UPSTREAM = {"http", "openai"}


def load(model: Model, device: str) -> Engine | Generator:
    """Creates an engine with the model's options. `device` is a torch device, or "" for the
    default. A device by UUID must be the only one that this process sees (`cuda_uuid`). Raises
    MissingExtra."""
    extras.require(model)
    device = cuda_uuid.torch_name(device)
    streams = model.engine == "openai" and model.spec.generates
    module, _, name = _FACTORIES["openai_stream" if streams else model.engine].partition(":")
    factory = getattr(import_module(module), name)
    if model.engine in _UPSTREAM:
        upstream: Engine | Generator = factory(model)
        return upstream
    if model.engine == "server":
        server: Generator = factory(model, device)
        return server
    options = dict(model.options)
    if model.engine in _ON_TORCH | _IN_A_CHILD:
        options.setdefault("device", device or None)
        # Launches side by side on their own cores do more than one spread over all of them.
        options.setdefault("threads", max(1, (os.cpu_count() or 1) // model.limits.in_flight))
    if model.engine in _IN_A_CHILD:
        options |= {
            "max_step_s": model.limits.max_launch_s,
            "max_load_s": model.limits.max_load_s,
            "adapters": model.adapters,
        }
    if model.engine == "huggingface":
        options["task"] = model.effective_task
    if model.engine == "python":
        options["text_only"] = model.spec.text_only
    if model.engine == "tensors":
        options |= {"device": options.get("device", device or None), "max_rows": most_rows(model)}
    engine: Engine | Generator = factory(**options)
    return engine


def load_preparer(model: Model) -> Preparer:
    """Creates what prepares a model's inputs, without its weights. Raises ValueError for an engine
    that prepares in its own workers alone."""
    if model.engine not in _PREPARERS:
        raise ValueError(f"{model.key}: the engine {model.engine!r} prepares in its own workers")
    module, _, name = _PREPARERS[model.engine].partition(":")
    factory = getattr(import_module(module), name)
    options = dict(model.options)
    if model.engine == "python":
        options["text_only"] = model.spec.text_only
    if model.engine == "image_classifier":
        options = {}
    if model.engine == "minilm":
        named = {"max_tokens": MAX_TOKENS} | options
        options = {name: named[name] for name in ("max_tokens", "on_too_long") if name in named}
    preparer: Preparer = factory(**options)
    return preparer


def load_engine(model: Model, device: str) -> Engine:
    """Creates an engine that runs launches. Raises ValueError for a model that generates."""
    engine = load(model, device)
    if isinstance(engine, Generator):
        engine.close()
        raise ValueError(f"{model.key} generates step by step: it has no launches")
    return engine
