"""Cost of structured output: steps of the real model whose sequences follow a schema, beside steps
whose sequences are free; and the time that a new schema costs before its first token."""

import statistics
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jobs import clock
from jobs.models import models_file
from ops.bench.generation import chats
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report
from workers.engines import registry
from workers.engines.generator import Generator, NewSequence, Prompt

ASKED = ("mask_cost_share <= 0.10",)
_STREAMS = 16
_TOKENS = 64  # of each stream, at the least
_PREFILL = 512  # tokens a step
_SCHEMAS = 20
_PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "role": {"enum": ["buyer", "seller", "broker"]},
        "notes": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    },
    "required": ["name", "age", "role", "notes"],
    "additionalProperties": False,
}
_PEOPLE = {"type": "array", "items": _PERSON, "minItems": 40}  # longer than a stream gets


def measure(report: Report, scale: Scale) -> None:
    """Measures steps of two engines in turn, then schemas that one of them has not seen."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="millrace-bench-"))
        free, bound = (stack.enter_context(closing(_engine(Path(folder)))) for _ in range(2))
        since_s = clock.monotonic()
        _prompt(bound, {"response_format": _format(_PERSON)})
        first_ms = (clock.monotonic() - since_s) * 1000
        shares, step_ms = _shares(free, bound, max(8, int(scale.seconds(_TOKENS))))
        schema_ms = [_check_ms(bound, n) for n in range(_SCHEMAS)]
    cost, step = statistics.median(shares), statistics.median(step_ms)
    say(f"a step of {_STREAMS} free streams {step:.1f} ms, of bound ones {cost:+.1%}")
    report.add(
        mask_cost_share=cost,
        free_step_p50_ms=step,
        schema_check_p50_ms=statistics.median(schema_ms),
        first_schema_check_ms=first_ms,
    )


def _engine(folder: Path) -> Generator:
    models = folder / "models.toml"
    models.write_text(chats.real_model())
    model = models_file.load(models).resolve(chats.REAL)
    engine = registry.load(replace(model, options={**model.options, "threads": 1}), "cpu")
    assert isinstance(engine, Generator)
    return engine


def _shares(free: Generator, bound: Generator, tokens: int) -> tuple[list[float], list[float]]:
    """Returns how much longer each step of the bound streams took than the free ones' beside it, as
    a share of that; and the times of those, ms."""
    _begin(free, {}, tokens)
    _begin(bound, {"response_format": _format(_PEOPLE)}, tokens)
    shares, step_ms = list[float](), list[float]()
    for n in range(tokens - 1):
        sides = {"free": free, "bound": bound}
        order = list(sides) if n % 2 else list(sides)[::-1]  # neither is always the first
        took_s = {name: _step_s(sides[name]) for name in order}
        shares.append(took_s["bound"] / took_s["free"] - 1)
        step_ms.append(took_s["free"] * 1000)
    return shares, step_ms


def _begin(engine: Generator, fields: Mapping[str, Any], tokens: int) -> None:
    """Adds the streams, and steps until each has its first token."""
    for n, body in enumerate(chats.questions(_STREAMS)):
        more = {"max_tokens": 2 * tokens, "min_tokens": 2 * tokens, "temperature": 0}
        prompt = _prompt(engine, {**body, **more, **fields})
        engine.add(NewSequence(f"{n}", prompt, prompt.request.sampling))
    started = set[str]()
    while len(started) < _STREAMS:
        started |= {emitted.id for emitted in engine.step(_PREFILL).emitted}


def _step_s(engine: Generator) -> float:
    step = engine.step(_PREFILL)
    if len(step.emitted) != _STREAMS or any(one.finish or one.error for one in step.emitted):
        raise ValueError(f"a stream ended too early: {step.emitted}")
    return step.duration_s


def _check_ms(engine: Generator, number: int) -> float:
    """Measures how long the check of a schema takes that nobody has sent before."""
    schema = {"type": "object", "properties": {"person": _PERSON, f"p{number}": _PERSON}}
    since_s = clock.monotonic()
    _prompt(engine, {"response_format": _format(schema)})
    return (clock.monotonic() - since_s) * 1000


def _prompt(engine: Generator, fields: Mapping[str, Any]) -> Prompt:
    [prompt] = engine.prepare([{"messages": [{"role": "user", "content": "Who?"}], **fields}])
    if not isinstance(prompt, Prompt):
        raise ValueError(str(prompt))
    return prompt


def _format(schema: Mapping[str, Any]) -> dict[str, Any]:
    wanted = {"name": "answer", "schema": schema, "strict": True}
    return {"type": "json_schema", "json_schema": wanted}
