"""Adapters: the cost of one that is loaded, of one that isn't, and of several in one step."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import httpx

from jobs import clock
from jobs.models.adapters import Adapter
from jobs.models.model import Limits, Model
from ops.bench.harness import random_adapters, random_llama
from ops.bench.harness.errors import BenchError
from ops.bench.harness.models_files import models_file
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.random_llama import TINY, Size
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report
from workers.engines.generator import Emitted, NewSequence, Prompt
from workers.engines.transformers.engine import TransformersGenerator

ASKED = (
    "adapter_hit_ms <= 5",
    "adapter_miss_p95_ms <= 100",
    "adapters_step_ratio <= 1.25",
    "adapters_exact_share >= 1",
)
_SMALL = Size(8192, 576, 1536, 30, 9, 3, 2048)  # the layers of SmolLM2-135M
_RANK = 16
_REGISTERED, _SLOTS, _AT_ONCE = 50, 4, 8
_CALLS = 60  # of each kind
_TOKENS = 48
_NAME = "small"
_PROMPT = "Adapters change what a model says, by little."


def measure(report: Report, scale: Scale) -> None:
    """Measures all, on a model of the size of SmolLM2 and, for exactness, on a tiny one."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder = Path(name)
        options = _saved(folder / "small", _SMALL)
        adapters = _adapters(folder / "small", folder / "adapters", _REGISTERED)
        _measure_calls(report, scale, options, adapters)
        _measure_steps(report, scale, options, adapters[:_AT_ONCE])
        _measure_exactness(report, folder)


def _saved(folder: Path, size: Size) -> dict[str, Any]:
    folder.mkdir()
    return {**random_llama.save(folder, size, "float32"), "device": "cpu", "threads": 1}


def _adapters(base: Path, folder: Path, count: int, size: float = 0.02) -> list[Adapter]:
    shapes = random_adapters.llama_shapes(base)
    made = []
    for n in range(count):
        saved = random_adapters.save(folder / f"a{n}", shapes, seed=n, rank=_RANK, size=size)
        made.append(random_adapters.declared(saved))
    return made


# -- calls


def _measure_calls(
    report: Report, scale: Scale, options: dict[str, Any], adapters: Sequence[Adapter]
) -> None:
    """Measures calls of one token: of the model, of adapters in slots, and of absent ones."""
    model = Model(
        _NAME, "1", "transformers",
        target_ttft_ms=600_000,  # refuses none
        options={**options, "adapter_slots": _SLOTS, "context_tokens": 256},
        limits=Limits(max_batch=16),
        adapters=tuple(adapters),
    )  # fmt: skip
    calls = max(len(adapters), int(scale.seconds(_CALLS)))
    held = [f"{_NAME}:{one.name}" for one in adapters[:_SLOTS]]
    absent = [f"{_NAME}:{adapters[n % len(adapters)].name}" for n in range(_SLOTS, calls)]
    with (
        own_platform(models=models_file(model)) as platform,
        httpx.Client(base_url=platform.url, timeout=600.0) as http,
    ):
        for name in (_NAME, *held):
            _call_ms(http, name)
        pairs = [(_call_ms(http, _NAME), _call_ms(http, held[n % _SLOTS])) for n in range(calls)]
        base_ms = median(base for base, _ in pairs)
        misses = [_call_ms(http, name) - base_ms for name in absent]
    report.add(
        adapter_call_ms=base_ms,
        adapter_hit_ms=median(hit for _, hit in pairs) - base_ms,
        adapters_registered=len(adapters),
    )
    report.percentiles("adapter_miss_{}_ms", misses, 50, 95)


def _call_ms(http: httpx.Client, name: str) -> float:
    """Returns the time of one call, ms. Its prompt is its own: none finds a part of it cached."""
    asked = {"prompt": f"{uuid4().hex}: {_PROMPT}", "max_tokens": 1, "temperature": 0}
    since_s = clock.monotonic()
    answer = http.post("/infer", json={"model": name, "input": asked, "timeout_ms": 300_000})
    if answer.status_code != 200:
        raise BenchError(f"a call of {name} was answered {answer.status_code}: {answer.text}")
    return (clock.monotonic() - since_s) * 1000


# -- steps


def _measure_steps(
    report: Report, scale: Scale, options: dict[str, Any], adapters: Sequence[Adapter]
) -> None:
    """Measures steps of as many sequences as there are adapters, with none and with one each."""
    with _generator({**options, "adapter_slots": len(adapters)}) as generator:
        _load(generator, adapters)
        none: Sequence[Adapter | None] = [None] * len(adapters)
        found = scale.in_turn(
            {
                "none": lambda _: _step_ms(generator, none),
                "each": lambda _: _step_ms(generator, adapters),
            }
        )
    report.median(adapters_step_ms=found["each"], adapters_base_step_ms=found["none"])
    ratios = [each / none for each, none in zip(found["each"], found["none"], strict=True)]
    report.add(adapters_step_ratio=median(ratios))


def _step_ms(generator: TransformersGenerator, adapters: Sequence[Adapter | None]) -> float:
    """Returns the median time of a step in which all decode, ms."""
    _, steps = _run(generator, [(_PROMPT, adapter) for adapter in adapters])
    step_ms = median(steps) * 1000
    say(f"a step of {len(adapters)} sequences: {step_ms:.1f} ms")
    return step_ms


# -- exactness


def _measure_exactness(report: Report, folder: Path) -> None:
    """Compares one batch of the model and several adapters with merged models alone."""
    options = _saved(folder / "tiny", TINY)
    adapters = _adapters(folder / "tiny", folder / "of-tiny", _AT_ONCE, size=0.2)
    prompts = [f"{n}: {_PROMPT}" for n in range(2)]
    with _generator({**options, "adapter_slots": _AT_ONCE}) as generator:
        _load(generator, adapters)
        asked = [(text, adapter) for adapter in (None, *adapters) for text in prompts]
        found, _ = _run(generator, asked)
        expected, _ = _run(generator, [(text, None) for text in prompts])
    for adapter in adapters:
        merged = random_adapters.merge_llama(
            folder / "tiny", Path(adapter.path), folder / f"merged-{adapter.name}"
        )
        alone = {**options, "path": str(merged), "sha256": random_adapters.weights_sha256(merged)}
        with _generator(alone) as generator:
            for text in prompts:
                expected += _run(generator, [(text, None)])[0]
    equal = sum(one == other for one, other in zip(found, expected, strict=True))
    report.add(adapters_exact_share=equal / len(expected))


# -- generators


@contextmanager
def _generator(options: dict[str, Any]) -> Iterator[TransformersGenerator]:
    generator = TransformersGenerator(**options, sequences=32, cache_mb=512)
    try:
        yield generator
    finally:
        generator.close()


def _load(generator: TransformersGenerator, adapters: Sequence[Adapter]) -> None:
    for slot, adapter in enumerate(adapters):
        generator.load_adapter(slot, adapter)
    left = len(adapters)
    while left:
        for loaded in generator.step(0).adapters:
            if loaded.error:
                raise BenchError(str(loaded.error))
            left -= 1


def _run(
    generator: TransformersGenerator, asked: Sequence[tuple[str, Adapter | None]]
) -> tuple[list[tuple[int, ...]], list[float]]:
    """Returns the tokens of each sequence, and the seconds of steps in which all decode."""
    tokens: dict[str, tuple[int, ...]] = {}
    for text, adapter in asked:
        one = _sequence(generator, uuid4().hex, text, adapter)
        tokens[one.id] = ()
        generator.add(one)
    steps, ended = list[float](), 0
    while ended < len(tokens):
        step = generator.step(1024)
        if step.sequences == len(tokens) and not step.prefill_tokens:
            steps.append(step.duration_s)
        for emitted in step.emitted:
            tokens[emitted.id] += tuple(emitted.tokens)
            ended += _ends(emitted)
    return list(tokens.values()), steps


def _ends(emitted: Emitted) -> bool:
    if emitted.error:
        raise BenchError(str(emitted.error))
    return emitted.finish is not None


def _sequence(
    generator: TransformersGenerator, id: str, text: str, adapter: Adapter | None
) -> NewSequence:
    tokens = {"min_tokens": _TOKENS, "max_tokens": _TOKENS}
    [prompt] = generator.prepare([{"prompt": text, "temperature": 0, **tokens}])
    assert isinstance(prompt, Prompt), prompt
    sampling = replace(prompt.request.sampling, seed=0)
    salt = adapter.identity if adapter else ""
    return NewSequence(id, prompt, sampling, adapter=adapter, salt=salt)
