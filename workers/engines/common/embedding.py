"""What `minilm` and `encoder` share: texts in, mean-pooled vectors out, on any device."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from jobs.models.inputs.input_size import MAX_TOKENS
from workers.engines.common import device as devices
from workers.engines.common.bert import Encoder
from workers.engines.common.device import Send
from workers.engines.common.packing import LAYOUTS, TokenIds
from workers.engines.common.tokenize import Texts
from workers.engines.protocol import InvalidInput, Prepared

_log = logging.getLogger(__name__)

Load: TypeAlias = Callable[[torch.device], Mapping[str, Tensor]]

_USED = ("embeddings.", "encoder.")  # a pooler is not
_DTYPES = {"float32": torch.float32, "float16": torch.float16}


class Embedder:
    """Vectors of unit length, unless params say otherwise.

    load: BertModel's state dict, made on a device.
    device: a torch device; by default CUDA where there is one, else the CPU.
    max_tokens: longer texts are cut to this many tokens, [CLS] and [SEP] included.
    threads: torch's intra-op threads, a setting of the whole process; None leaves it.
    layout: "packed" or "padded". Who schedules goes by what is declared (`Model.pads`), so it does
    not depend on the device; a GPU wants "padded".
    dtype: "float32", or "float16", which halves memory and time on a GPU; vectors are float32.

    params: `normalize` (bool, default true); `truncate` (int): tokens that a text is cut to, where
    that is less than the model's own; `dimensions` (int): numbers that a vector is cut to, before
    it is normalized.
    """

    def __init__(
        self,
        load: Load,
        heads: int,
        *,
        device: str | None = None,
        max_tokens: int = MAX_TOKENS,
        threads: int | None = None,
        layout: str = "packed",
        dtype: str = "float32",
    ) -> None:
        _known("layout", layout, LAYOUTS)
        _known("dtype", dtype, _DTYPES)
        if threads is not None:
            torch.set_num_threads(threads)
        self._texts, self._layout = Texts(max_tokens), LAYOUTS[layout]
        self._device = devices.choose(device)
        self._encoder, self._memory_mb = _encoder(load, self._device.place, _DTYPES[dtype], heads)
        self._device.release()
        if layout == "packed" and self._device.place.type == "cuda":
            _log.warning("a GPU starves on texts end to end: declare layout = 'padded'")

    def prepare(
        self, inputs: Sequence[Any], params: Mapping[str, Any]
    ) -> list[Prepared | InvalidInput]:
        """Token ids (int32 [size]) per text, or per list of its token ids."""
        if (asked := params.get("dimensions", 0)) > self._encoder.hidden:
            words = f"dimensions is {asked}; the model has {self._encoder.hidden}"
            return [InvalidInput(words) for _ in inputs]
        return self._texts.prepare(inputs, params)

    def run(self, batch: Sequence[TokenIds], params: Mapping[str, Any]) -> NDArray[np.float32]:
        """batch: token ids per text. Returns float32 [texts, dimensions], in order."""
        return self._device.run(partial(self._embed, batch, params))

    def samples(self) -> list[str]:
        return self._texts.samples()

    def memory_mb(self) -> float:
        return self._memory_mb

    def close(self) -> None:
        del self._encoder
        self._device.release()

    def _embed(self, batch: Sequence[TokenIds], params: Mapping[str, Any], send: Send) -> Tensor:
        vectors = self._encoder(self._layout(batch, send))[:, : params.get("dimensions")]
        return F.normalize(vectors) if params.get("normalize", True) else vectors


def _encoder(
    load: Load, place: torch.device, dtype: torch.dtype, heads: int
) -> tuple[Encoder, float]:
    """Also the MiB of its weights. What was only loaded is gone with this frame."""
    weights = {n: w.to(dtype) for n, w in load(place).items() if n.startswith(_USED)}
    return Encoder(weights, heads), sum(w.nbytes for w in weights.values()) / 2**20


def _known(option: str, value: str, known: Mapping[str, object]) -> None:
    if value not in known:
        raise ValueError(f"options.{option} is {value!r}; there are: {', '.join(known)}")
