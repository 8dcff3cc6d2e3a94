"""Generators without the platform, each in a process of its own.

`python -m ops.bench.baselines.generators KIND MODELS NAME` answers lines of JSON, each an `Order`:
"bare" drives the model's engine by its protocol; "alone" runs `generate` of transformers on the
same folder, one prompt after the other; "stock" runs transformers' continuous batching with sdpa.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from jobs import clock
from jobs.models import models_file
from jobs.models.model import Model
from ops.bench.harness.child_process import answer_lines, child
from workers.engines.generator import Emitted, Generator, NewSequence, Prompt

_PREFILL_TOKENS = 512  # a step


@dataclass(frozen=True, slots=True)
class Order:
    """Chats to generate, greedily."""

    inputs: Sequence[dict[str, Any]]  #: bodies of chat completions
    max_tokens: int
    streams: int = 1  #: at a time
    ignore_end: bool = True  #: each chat has exactly `max_tokens`
    preempt_after: int = 0  #: tokens after which each is aborted, and added again with them


@dataclass(frozen=True, slots=True)
class Generated:
    """Result of an order."""

    seconds: float
    tokens: Sequence[Sequence[int]]  #: by input
    texts: Sequence[str]
    ttft_ms: Sequence[float]  #: by input, from when it was added; empty where not known
    gaps_ms: Sequence[float]  #: between two tokens of one stream; empty where not known
    cpu_s: float = 0.0  #: of the process that has the model; 0: not known

    @property
    def per_s(self) -> float:
        """Generated tokens a second."""
        return sum(map(len, self.tokens)) / self.seconds

    @property
    def per_cpu_s(self) -> float:
        """Generated tokens a second of CPU."""
        return sum(map(len, self.tokens)) / self.cpu_s


@contextmanager
def generator(kind: str, models: Path, name: str) -> Iterator[Callable[[Order], Generated]]:
    """Starts a generator; yields a function that runs an order."""
    with child("ops.bench.baselines.generators", kind, str(models), name) as process:
        yield lambda order: Generated(**process.ask(asdict(order)))


class _Bare:
    """Drives a generator step by step, with so many sequences in."""

    def __init__(self, engine: Generator) -> None:
        self._engine = engine
        self._process = psutil.Process(getattr(engine, "pid", None))
        self._orders = 0

    def run(self, order: Order) -> Generated:
        """Runs one order."""
        self._orders += 1
        prompts = self._engine.prepare([_body(body, order) for body in order.inputs])
        waiting = [
            _Chat(n, f"{self._orders}/{n}", prompt)
            for n, prompt in enumerate(prompts)
            if isinstance(prompt, Prompt)
        ]
        if len(waiting) < len(prompts):
            raise ValueError(f"an input was refused: {prompts}")
        chats = list(waiting)
        waiting.reverse()
        gaps_ms, running = list[float](), dict[str, _Chat]()
        since_s, before_s = clock.monotonic(), self._cpu_s()
        while waiting or running:
            while waiting and len(running) < order.streams:
                self._add(waiting.pop(), running)
            for emitted in self._engine.step(_PREFILL_TOKENS).emitted:
                if emitted.error:
                    raise emitted.error
                chat = running[emitted.id]
                chat.take(emitted, gaps_ms)
                if emitted.finish:
                    del running[emitted.id]
                elif order.preempt_after and len(chat.tokens) == order.preempt_after:
                    self._engine.abort(emitted.id)
                    waiting.insert(0, running.pop(emitted.id))
        return Generated(
            clock.monotonic() - since_s,
            [chat.tokens for chat in chats],
            [chat.text for chat in chats],
            [chat.ttft_ms for chat in chats],
            gaps_ms,
            self._cpu_s() - before_s,
        )

    def _add(self, chat: "_Chat", running: "dict[str, _Chat]") -> None:
        id = f"{chat.id}/{len(chat.tokens)}"
        sampling = chat.prompt.request.sampling
        self._engine.add(NewSequence(id, chat.prompt, sampling, tuple(chat.tokens)))
        chat.latest_s = clock.monotonic()
        running[id] = chat

    def _cpu_s(self) -> float:
        return float(sum(self._process.cpu_times()[:2]))


@dataclass(slots=True)
class _Chat:
    """Chat that waits, runs or has ended."""

    number: int
    id: str
    prompt: Prompt
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    ttft_ms: float = 0.0
    latest_s: float = 0.0  #: when it was added, or its latest tokens came

    def take(self, emitted: Emitted, gaps_ms: list[float]) -> None:
        """Adds new tokens, and their time to the first token or to the gaps."""
        now_s = clock.monotonic()
        waited_ms = (now_s - self.latest_s) * 1000
        if self.tokens:
            gaps_ms.append(waited_ms)
        else:
            self.ttft_ms = waited_ms
        self.latest_s = now_s
        self.tokens += emitted.tokens
        self.text += emitted.text


def _body(body: dict[str, Any], order: Order) -> dict[str, Any]:
    least = order.max_tokens if order.ignore_end else 0
    return {**body, "temperature": 0, "max_tokens": order.max_tokens, "min_tokens": least}


def _transformers(model: Model) -> tuple[Any, Callable[[dict[str, Any]], list[int]]]:
    """Returns the model as the library loads it, and a function that tokenizes a chat."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from workers.engines.transformers import samples

    torch.set_num_threads(int(model.options.get("threads", 1)))
    builtin = model.options.get("builtin")
    folder = samples.folder(builtin) if builtin else model.options["path"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def encode(body: dict[str, Any]) -> list[int]:
        """Token ids of a chat, as the template writes it."""
        text = tokenizer.apply_chat_template(
            body["messages"], add_generation_prompt=True, tokenize=False
        )
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    return (network.eval(), tokenizer), encode


def _alone(loaded: Any, encode: Callable[[dict[str, Any]], list[int]], order: Order) -> Generated:
    import torch

    network, tokenizer = loaded
    tokens = []
    since_s = clock.monotonic()
    for body in order.inputs:
        ids = torch.tensor([encode(body)])
        least = order.max_tokens if order.ignore_end else 0
        with torch.inference_mode():
            output = network.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False,
                max_new_tokens=order.max_tokens, min_new_tokens=least,
            )  # fmt: skip
        ended = network.generation_config.eos_token_id
        ends = {ended} if isinstance(ended, int) else set(ended)
        tokens.append([token for token in output[0, ids.shape[1] :].tolist() if token not in ends])
    took_s = clock.monotonic() - since_s
    return Generated(took_s, tokens, [tokenizer.decode(each) for each in tokens], [], [])


def _stock(loaded: Any, encode: Callable[[dict[str, Any]], list[int]], order: Order) -> Generated:
    import transformers

    library: Any = transformers
    network, tokenizer = loaded
    config = library.GenerationConfig(
        max_new_tokens=order.max_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    batching = library.ContinuousBatchingConfig(
        page_size=16, num_blocks=2048, max_requests_per_batch=order.streams
    )
    since_s = clock.monotonic()
    found = network.generate_batch(
        [encode(body) for body in order.inputs], config, batching, progress_bar=False
    )
    took_s = clock.monotonic() - since_s
    tokens = [list(each.generated_tokens) for each in found.values()]
    return Generated(took_s, tokens, [tokenizer.decode(each) for each in tokens], [], [])


def _main(kind: str, models: str, name: str) -> None:
    model = models_file.load(Path(models)).resolve(name)
    if kind == "bare":
        from workers.engines import registry

        engine = registry.load(model, "")
        if not isinstance(engine, Generator):
            raise SystemExit(f"{model.key} doesn't generate")
        run = _Bare(engine).run
    else:
        run = partial({"alone": _alone, "stock": _stock}[kind], *_transformers(model))
    answer_lines(lambda order: asdict(run(Order(**order))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
