"""Embedding engine shared by `minilm` and `encoder`: texts to mean-pooled vectors."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from jobs.models.adapters import SLOTS, Adapter
from jobs.models.inputs.input_size import MAX_TOKENS, POSITIONS, OnTooLong
from workers.engines.adapters import lora
from workers.engines.adapters.cache import AdapterCache
from workers.engines.adapters.lora import Lora, Rows, rows_of
from workers.engines.adapters.slots import Slots
from workers.engines.common import device as devices
from workers.engines.common.device import Send
from workers.engines.encoders import layouts
from workers.engines.encoders.bert import Encoder
from workers.engines.encoders.layouts import Layout, TokenIds
from workers.engines.encoders.tokenize import Texts
from workers.engines.protocol import (
    Adapted,
    DeviceFailed,
    InvalidInput,
    Params,
    Prepared,
    PreparedInputs,
)

Load: TypeAlias = Callable[[torch.device], Mapping[str, Tensor]]

_USED = ("embeddings.", "encoder.")  # prefixes; a pooler is not used
_KNOWN_TEXT = "The quick brown fox jumps over the lazy dog."
_TOLERANCE = 0.01  # of each number of a vector of length 1, and of its length, in float16


class Embedder:
    """Embeds texts as vectors of unit length, unless params say otherwise.

    Options: `load` creates the state dict of BertModel on a device. `device` is a torch device; by
    default CUDA where there is one, else the CPU. Texts of more than `max_tokens`, [CLS] and [SEP]
    included, are cut, or refused where `on_too_long` is "fail". `threads` sets torch's intra-op
    threads of the process; None leaves them. `layout` is "packed", texts end to end, or "padded";
    the api schedules by what is declared (`Model.pads`). `dtype` is that of the weights, "float32",
    "float16" or "bfloat16"; "auto" is bfloat16 on GPUs that compute it, and float32 elsewhere.
    Vectors are float32.

    `adapter_slots` is the number of adapters (LoRA) in memory at a time.

    Params: `normalize` (bool, default true); `truncate` (int) cuts texts to fewer tokens;
    `dimensions` (int) cuts vectors before they are normalized.
    """

    known_answer: Sequence[float] = ()  #: first numbers of the vector of `_KNOWN_TEXT`

    def __init__(
        self,
        load: Load,
        heads: int,
        *,
        device: str | None = None,
        max_tokens: int = MAX_TOKENS,
        on_too_long: OnTooLong = "truncate",
        threads: int | None = None,
        layout: str = "packed",
        dtype: str = devices.AUTO,
        adapter_slots: int = SLOTS,
    ) -> None:
        _known("layout", layout, layouts.NAMES)
        _known("dtype", dtype, devices.DTYPES)
        if threads is not None:
            torch.set_num_threads(threads)
        self._texts = Texts(max_tokens, on_too_long)
        self._device = devices.choose(device, preemptible=True)
        place = self._device.place
        numbers = devices.dtype(dtype, place)
        self._encoder, self._memory_mb = _encoder(load, place, numbers, heads)
        head_size = self._encoder.hidden // heads
        self._create_layout = layouts.choose(layout, place, numbers, head_size)
        self._device.release()
        encoder = self._encoder
        self._adapters = AdapterCache(
            adapter_slots, lambda one: lora.load(one, encoder.shapes, encoder.dtype, place)
        )

    @property
    def preemptible(self) -> bool:
        """True on a CPU."""
        return isinstance(self._device, devices.Cpu)

    def prepare(self, inputs: Sequence[Any], params: Params) -> PreparedInputs:
        """Returns token ids (int32 [size]) for each text, or list of its token ids."""
        if (dimensions := params.get("dimensions", 0)) > self._encoder.hidden:
            words = f"dimensions is {dimensions}; the model has {self._encoder.hidden}"
            return [InvalidInput(words) for _ in inputs]
        return self._texts.prepare(inputs, params)

    def run(self, batch: Sequence[TokenIds | Adapted], params: Params) -> NDArray[np.float32]:
        """Maps token ids per text to float32 [texts, dimensions], in order."""
        return self._device.run(partial(self._embed, batch, params))

    @property
    def held_adapters(self) -> Slots:
        """Implements `AdaptingEngine.held_adapters`."""
        return self._adapters.slots

    def loaded_adapter(self, adapter: Adapter) -> Lora | None:
        """Implements `AdaptingEngine.loaded_adapter`."""
        return self._adapters.find(adapter)

    def load_adapter(self, adapter: Adapter) -> Lora:
        """Implements `AdaptingEngine.load_adapter`."""
        return self._adapters.get(adapter)

    def samples(self) -> list[str]:
        """Returns sample inputs."""
        return self._texts.samples()

    def probe(self) -> None:
        """Embeds a known text. Raises DeviceFailed where its vector isn't `known_answer`, or, where
        that is empty, isn't the one of the first time."""
        [prepared] = self._texts.prepare([_KNOWN_TEXT], {"truncate": POSITIONS})
        assert isinstance(prepared, Prepared)
        [vector] = self.run([prepared.data], {})
        if not self.known_answer:
            self.known_answer = vector.tolist()
        expected = np.array(self.known_answer, np.float32)
        worst = float(np.abs(vector[: len(expected)] - expected).max())
        length = float(np.linalg.norm(vector))
        if not (worst <= _TOLERANCE and abs(length - 1) <= _TOLERANCE):  # or NaN
            raise DeviceFailed(
                f"the vector of a known text is {worst:.3g} off, its length {length:.3g}"
            )

    def memory_mb(self) -> float:
        """Returns the size of the weights, MiB."""
        return self._memory_mb

    def close(self) -> None:
        """Frees the weights."""
        del self._encoder, self._adapters
        self._device.release()

    def _embed(self, batch: Sequence[TokenIds | Adapted], params: Params, send: Send) -> Tensor:
        texts = self._create_layout(
            [one.data if isinstance(one, Adapted) else one for one in batch], send
        )
        texts.adapters = _adapters(batch, texts, self._device.place)
        vectors = self._encoder(texts)[:, : params.get("dimensions")]
        return F.normalize(vectors) if params.get("normalize", True) else vectors


def _encoder(
    load: Load, place: torch.device, dtype: torch.dtype, heads: int
) -> tuple[Encoder, float]:
    """Returns the encoder and the MiB of its weights; unused tensors are freed on return."""
    weights = {n: w.to(dtype) for n, w in load(place).items() if n.startswith(_USED)}
    return Encoder(weights, heads), sum(w.nbytes for w in weights.values()) / 2**20


def _adapters(
    batch: Sequence[TokenIds | Adapted], texts: Layout, place: torch.device
) -> list[tuple[Rows, Lora]]:
    """Returns the tokens of each adapter in a launch."""
    spans: dict[int, list[range]] = {}
    found: dict[int, Lora] = {}
    for one, span in zip(batch, texts.spans, strict=True):
        if isinstance(one, Adapted):
            found[id(one.adapter)] = one.adapter
            spans.setdefault(id(one.adapter), []).append(span)
    return [
        (rows_of(sorted(its, key=lambda span: span.start), place), found[key])
        for key, its in spans.items()
    ]


def _known(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"options.{option} is {value!r}; there are: {', '.join(known)}")
