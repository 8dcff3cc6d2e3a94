"""Check of one model that generates: its memory plan, and where it is loaded its rates."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from jobs import clock
from jobs.models import memory_plan, network_shape
from jobs.models.engines.generating_engines import TransformersOptions
from jobs.models.memory_plan import MIB, MemoryPlan
from jobs.models.model import Model
from jobs.processes import memory
from ops.cli.model_check import ModelCheckFailed
from workers.engines import registry as engines
from workers.engines.generator import Generator, GeneratorDied, NewSequence, Prompt
from workers.engines.transformers import samples

_TOKENS = 16  # of each answer
_STREAMS = (1, 4, 16)
_PREFILL = 512
_INPUTS = (
    {"messages": [{"role": "user", "content": "Tell me about the mills of a river."}]},
    {"prompt": "The mills of a river"},
)
_OUTPUT_CHARS = 200  # of the output that is shown


@dataclass(frozen=True, slots=True)
class Rate:
    """Rate of some streams side by side."""

    streams: int
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class GeneratorReport:
    """Result of a check."""

    model: str
    plan: MemoryPlan | None  #: None: its engine decides about its memory
    load_s: float = 0.0
    memory_mb: float = 0.0  #: as its engine counts it
    output: str = ""  #: of the first input
    rates: Sequence[Rate] = ()  #: (): it was not loaded

    def as_json(self) -> dict[str, Any]:
        """Object that `--json` prints."""
        made = asdict(replace(self, plan=None))
        return made | {"plan": self.plan and self.plan.as_json()}

    def lines(self) -> Iterator[str]:
        """Yields the lines of the report."""
        if self.plan:
            yield from self.plan.lines()
        elif not self.rates:
            yield f"{self.model}: its engine plans its memory itself"
        if not self.rates:
            return
        counted = f"{self.memory_mb:.1f} MiB" if self.memory_mb else "memory not known"
        yield f"{self.model}: loaded in {self.load_s:.1f} s, {counted} by its engine"
        yield f"first answer: {self.output}"
        for rate in self.rates:
            yield f"{rate.streams:6} streams {rate.tokens_per_s:10.1f} tokens/s"


def plan_model(model: Model, device: str, memory_mb: int = 0) -> MemoryPlan | None:
    """Returns the memory plan of a model; None where its engine decides about its memory.

    memory_mb: free on its device; 0: as it is on this machine, where that is the device. Raises
    ModelCheckFailed.
    """
    if model.engine != "transformers":
        return None
    options = TransformersOptions(**model.options)
    try:
        folder = samples.folder(options.builtin) if options.builtin else Path(options.path)
        shape = network_shape.read_shape(folder)
    except (RuntimeError, ValueError) as error:
        raise ModelCheckFailed(f"{model.key}: {error}") from error
    on_cpu = (options.device or device or "cpu").startswith("cpu")
    available = memory_mb * MIB or (memory.available_bytes() if on_cpu else 0)
    planned = memory_plan.with_defaults(options, on_cpu=on_cpu, adapters=model.adapters)
    return memory_plan.make_plan(model.key, shape, planned, available)


def check_generator(
    model: Model, device: str, inputs: Sequence[Any] = (), *, plan: MemoryPlan | None = None
) -> GeneratorReport:
    """Loads a model and measures how fast it generates. Raises ModelCheckFailed."""
    if problems := model.file_problems():
        raise ModelCheckFailed("; ".join(problems))
    since_s = clock.monotonic()
    try:
        engine = engines.load(model, device)
    except (Exception, SystemExit) as error:
        raise ModelCheckFailed(
            f"{model.key} can't be loaded: {type(error).__name__}: {error}"
        ) from error
    load_s = clock.monotonic() - since_s
    try:
        assert isinstance(engine, Generator)
        prompt = _prompt(model, engine, inputs)
        counts = [count for count in _STREAMS if count <= engine.capacity.sequences]
        output, _ = _run(engine, prompt, 1)  # warms up
        rates = [Rate(count, round(_run(engine, prompt, count)[1], 1)) for count in counts]
        return GeneratorReport(
            model.key, plan, round(load_s, 3), engine.memory_mb(), output[:_OUTPUT_CHARS], rates
        )
    except GeneratorDied as error:
        raise ModelCheckFailed(f"{model.key}: {error}") from error
    finally:
        engine.close()


def _prompt(model: Model, engine: Generator, inputs: Sequence[Any]) -> Prompt:
    """Returns the first input that the engine takes."""
    prepared = engine.prepare(list(inputs or _INPUTS))
    if taken := next((one for one in prepared if isinstance(one, Prompt)), None):
        return taken
    raise ModelCheckFailed(f"{model.key} refuses its input: {prepared[0]}")


def _run(engine: Generator, prompt: Prompt, streams: int) -> tuple[str, float]:
    """Generates side by side; returns the first answer and tokens a second. Raises
    ModelCheckFailed."""
    since_s = clock.monotonic()
    sampling = replace(
        prompt.request.sampling, max_tokens=_TOKENS, min_tokens=_TOKENS, temperature=0.0, seed=0
    )
    ids = {f"check/{clock.random_bits(62):x}" for _ in range(streams)}
    for id in ids:
        engine.add(NewSequence(id, prompt, sampling))
    first, text, tokens = next(iter(ids)), "", 0
    while ids:
        for emitted in engine.step(_PREFILL).emitted:
            if emitted.error:
                raise ModelCheckFailed(f"it fails: {emitted.error}")
            tokens += len(emitted.tokens)
            text += emitted.text if emitted.id == first else ""
            ids -= {emitted.id} if emitted.finish else set()
    return text, tokens / (clock.monotonic() - since_s)
