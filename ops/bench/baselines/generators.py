"""Generators without the platform, each in a process of its own.

`python -m ops.bench.baselines.generators KIND MODELS NAME` answers lines of JSON, each an `Order`:
"bare" drives the model's engine by its protocol; "alone" runs `generate` of transformers on the
same folder, one prompt after the other; "stock" runs transformers' continuous batching with sdpa.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jobs import clock
from jobs.models import models_file
from jobs.models.model import Model
from ops.bench.harness.child_process import answer_lines, child
from workers.engines.generator import Generator, NewSequence, Prompt

_PREFILL_TOKENS = 512  # a step


@dataclass(frozen=True, slots=True)
class Order:
    """Chats to generate, greedily."""

    inputs: Sequence[dict[str, Any]]  #: bodies of chat completions
    max_tokens: int
    streams: int = 1  #: at a time
    ignore_end: bool = True  #: each chat has exactly `max_tokens`


@dataclass(frozen=True, slots=True)
class Generated:
    """Result of an order."""

    seconds: float
    tokens: Sequence[Sequence[int]]  #: by input
    texts: Sequence[str]
    ttft_ms: Sequence[float]  #: by input, from when it was added; empty where not known
    gaps_ms: Sequence[float]  #: between two tokens of one stream; empty where not known

    @property
    def per_s(self) -> float:
        """Generated tokens a second."""
        return sum(map(len, self.tokens)) / self.seconds


@contextmanager
def generator(kind: str, models: Path, name: str) -> Iterator[Callable[[Order], Generated]]:
    """Starts a generator; yields a function that runs an order."""
    with child("ops.bench.baselines.generators", kind, str(models), name) as process:
        yield lambda order: Generated(**process.ask(asdict(order)))


class _Bare:
    """Drives a generator step by step, with so many sequences in."""

    def __init__(self, engine: Generator) -> None:
        self._engine = engine
        self._orders = 0

    def run(self, order: Order) -> Generated:
        """Runs one order."""
        self._orders += 1
        prompts = self._engine.prepare([_body(body, order) for body in order.inputs])
        waiting = [(n, prompt) for n, prompt in enumerate(prompts) if isinstance(prompt, Prompt)]
        if len(waiting) < len(prompts):
            raise ValueError(f"an input was refused: {prompts}")
        waiting.reverse()
        tokens: list[list[int]] = [[] for _ in prompts]
        texts = [""] * len(prompts)
        added_s, latest_s = dict[str, float](), dict[str, float]()
        ttft_ms, gaps_ms = [0.0] * len(prompts), list[float]()
        since_s = clock.monotonic()
        while waiting or added_s:
            while waiting and len(added_s) < order.streams:
                n, prompt = waiting.pop()
                id = f"{self._orders}/{n}"
                self._engine.add(NewSequence(id, prompt, prompt.request.sampling))
                added_s[id] = clock.monotonic()
            for emitted in self._engine.step(_PREFILL_TOKENS).emitted:
                if emitted.error:
                    raise emitted.error
                n, now_s = int(emitted.id.partition("/")[2]), clock.monotonic()
                if emitted.tokens and emitted.id in latest_s:
                    gaps_ms.append((now_s - latest_s[emitted.id]) * 1000)
                elif emitted.tokens:
                    ttft_ms[n] = (now_s - added_s[emitted.id]) * 1000
                latest_s[emitted.id] = now_s
                tokens[n] += emitted.tokens
                texts[n] += emitted.text
                if emitted.finish:
                    del added_s[emitted.id]
        return Generated(clock.monotonic() - since_s, tokens, texts, ttft_ms, gaps_ms)


def _body(body: dict[str, Any], order: Order) -> dict[str, Any]:
    least = order.max_tokens if order.ignore_end else 0
    return {**body, "temperature": 0, "max_tokens": order.max_tokens, "min_tokens": least}


def _transformers(model: Model) -> tuple[Any, Callable[[dict[str, Any]], list[int]]]:
    """Returns the model as the library loads it, and a function that tokenizes a chat."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(int(model.options.get("threads", 1)))
    folder = model.options["path"]
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
