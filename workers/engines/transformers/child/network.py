"""Causal language model of transformers, with its paged KV cache."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from jobs.models.adapters import Adapter
from workers.engines.transformers.child import attention, int8
from workers.engines.transformers.child.adapters import LoadedAdapters
from workers.engines.transformers.child.attention import Layer, PackedRow
from workers.engines.transformers.child.sampler import Sampler, scores
from workers.engines.transformers.child.sequences import Choice, Chunk
from workers.engines.transformers.structured.masks import MaskMaker

_ONLY_THE_FOLDER = {"local_files_only": True, "trust_remote_code": False}
_DYNAMIC_ROPE = {"dynamic", "longrope"}  # rotations that depend on all positions of a step
_MIB = 1 << 20


def load_model(folder: Path, dtype: str, device: torch.device, quantization: str = "") -> Any:
    """Loads the weights of a folder. Raises ValueError for models that can't be batched here."""
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    auto: Any = transformers.AutoModelForCausalLM
    model, loaded = auto.from_pretrained(
        folder,
        dtype=getattr(torch, dtype),
        use_safetensors=True,
        output_loading_info=True,
        **_ONLY_THE_FOLDER,
    )
    if missing := sorted({*loaded["missing_keys"], *map(str, loaded["mismatched_keys"])}):
        raise ValueError(f"{folder} has no weights for {', '.join(missing)}")
    if problem := _misfit(model):
        raise ValueError(f"{folder}: {problem}; the engine openai takes it from another server")
    if quantization:
        int8.quantize(model)
    return model.to(device).eval()


def _misfit(model: Any) -> str | None:
    config = model.config.get_text_config()
    if not model._supports_attention_backend:
        return f"{type(model).__name__} has attention of its own"
    if set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}:
        return "it has layers without full attention"
    rope = getattr(config, "rope_parameters", None) or {}
    if isinstance(rope, Mapping) and rope.get("rope_type") in _DYNAMIC_ROPE:
        return f"its rotary embedding is {rope['rope_type']}"
    return None


def context_tokens(model: Any) -> int:
    """Returns the tokens that a sequence of the model may have."""
    config = model.config.get_text_config()
    known = (config.max_position_embeddings, getattr(config, "sliding_window", None))
    return min(int(tokens) for tokens in known if tokens)


def block_bytes(model: Any, block_tokens: int) -> int:
    """Returns the size of a block in all layers."""
    _, size, heads, dimension = _layer_shape(model, 1, block_tokens)
    return 2 * _layers(model) * size * heads * dimension * int(model.dtype.itemsize)


def vocabulary(model: Any) -> int:
    """Returns the number of a model's tokens."""
    count: int = model.get_input_embeddings().num_embeddings
    return count


def weights_mb(model: Any) -> float:
    """Returns the size of the weights, MiB."""
    return float(sum(weight.nbytes for weight in (*model.parameters(), *model.buffers())) / _MIB)


class PagedNetwork:
    """Model and cache. Raises ValueError where they compute something else than the model alone."""

    def __init__(
        self,
        model: Any,
        blocks: int,
        block_tokens: int,
        masks: MaskMaker,
        adapters: LoadedAdapters,
    ) -> None:
        self.vocabulary = vocabulary(model)
        self._model, self._masks, self._adapters = model, masks, adapters
        self._sampler = Sampler()
        shape = _layer_shape(model, blocks + 1, block_tokens)  # one block is padding
        self._layers: list[Layer] = [
            attention.empty_layer(shape, model.dtype, model.device) for _ in range(_layers(model))
        ]
        transformers.AttentionInterface.register(attention.NAME, attention.paged_attention)
        model.set_attn_implementation(attention.NAME)

    @torch.inference_mode()
    def next_tokens(self, chunks: Sequence[Chunk]) -> list[Choice]:
        """Implements `batch.Network.next_tokens`."""
        ends, scored, size = [], list[int](), 0
        for chunk in chunks:
            if chunk.sequence.scores:
                scored += [size + place - chunk.start for place in chunk.scored]
            size += chunk.size
            if chunk.completes:
                ends.append(size - 1)
        rows = [chunk.sequence for chunk in chunks if chunk.completes]
        masks = self._masks.begin([row.grammar for row in rows])
        logits = self.logits(chunks, ends + scored)
        if scored:
            _score(chunks, logits[len(ends) :])
        return self._sampler.choose(logits[: len(ends)], rows, masks) if rows else []

    @torch.inference_mode()
    def logits(self, chunks: Sequence[Chunk], rows: Sequence[int]) -> Tensor:
        """Computes the chunks; returns logits [row, token] of some rows of the packed row."""
        device = self._model.device
        tokens = [t for c in chunks for t in c.sequence.tokens[c.start : c.end]]
        places = [place for chunk in chunks for place in range(chunk.start, chunk.end)]
        packed: PackedRow = attention.pack(chunks, self._layers)
        self._adapters.stacked.plan(list(_spans(chunks)))
        output = self._model(
            input_ids=torch.tensor([tokens], device=device),
            position_ids=torch.tensor([places], device=device),
            use_cache=False,
            logits_to_keep=torch.tensor(rows, dtype=torch.long, device=device),
            packed=packed,
        )
        logits: Tensor = output.logits[0].float()
        return logits

    def slot(self, adapter: Adapter) -> int | None:
        """Implements `batch.Network.slot`."""
        return self._adapters.slot(adapter)

    def clear(self, blocks: Sequence[int]) -> None:
        """Overwrites what blocks hold."""
        for keys, values in self._layers:
            keys[list(blocks)] = 0
            values[list(blocks)] = 0


def _score(chunks: Sequence[Chunk], logits: Tensor) -> None:
    """Scores tokens of prompts. logits: of the scored places of all chunks."""
    row = 0
    for chunk in chunks:
        if its := chunk.sequence.scores:
            places = chunk.scored
            tokens = chunk.sequence.tokens[places.start + 1 : places.stop + 1]
            its.found += scores(logits[row : row + len(places)], tokens, its.top)
            row += len(places)


def _spans(chunks: Sequence[Chunk]) -> Iterator[tuple[range, int | None]]:
    """Yields the rows of each chunk with the slot of its adapter."""
    row = 0
    for chunk in chunks:
        yield range(row, row + chunk.size), chunk.sequence.slot
        row += chunk.size


def _layers(model: Any) -> int:
    count: int = model.config.get_text_config().num_hidden_layers
    return count


def _layer_shape(model: Any, blocks: int, block_tokens: int) -> tuple[int, int, int, int]:
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return blocks, block_tokens, heads, size
