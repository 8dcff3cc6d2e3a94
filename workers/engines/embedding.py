"""What `minilm` and `encoder` share: texts in, mean-pooled vectors out, on any device."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from workers.engines.bert import Encoder
from workers.engines.device import Device, Send
from workers.engines.layouts import LAYOUTS, TokenIds
from workers.engines.protocol import InvalidInput, Prepared
from workers.engines.texts import Texts

_USED = ("embeddings.", "encoder.")  # a pooler is not
_DTYPES = {"float32": torch.float32, "float16": torch.float16}


class Embedder:
    """Vectors of unit length, unless params say otherwise.

    weights: BertModel's state dict, on the device.
    layout: "packed" or "padded"; who schedules goes by it too (`Model.pads`), so it is the same on
    every device unless the model's options say so. A GPU wants "padded".
    dtype: "float32", or "float16", which halves memory and time on a GPU; vectors are float32.

    params: `normalize` (bool, default true); `truncate` (int): tokens that a text is cut to, where
    that is less than the model's own.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        heads: int,
        texts: Texts,
        device: Device,
        layout: str,
        dtype: str,
    ) -> None:
        _known("layout", layout, LAYOUTS)
        _known("dtype", dtype, _DTYPES)
        used = {n: w.to(_DTYPES[dtype]) for n, w in weights.items() if n.startswith(_USED)}
        self._memory_mb = sum(weight.nbytes for weight in used.values()) / 2**20
        self._encoder = Encoder(used, heads)
        self._texts, self._device, self._layout = texts, device, LAYOUTS[layout]

    def prepare(
        self, inputs: Sequence[Any], params: Mapping[str, Any]
    ) -> list[Prepared | InvalidInput]:
        """Token ids (int32 [size]) per text."""
        return self._texts.prepare(inputs, params)

    def run(self, batch: Sequence[TokenIds], params: Mapping[str, Any]) -> NDArray[np.float32]:
        """batch: token ids per text. Returns float32 [texts, hidden], in order."""
        return self._device.run(partial(self._embed, batch, params))

    def samples(self) -> list[str]:
        return self._texts.samples()

    def memory_mb(self) -> float:
        return self._memory_mb

    def close(self) -> None:
        del self._encoder
        self._device.release()

    def _embed(self, batch: Sequence[TokenIds], params: Mapping[str, Any], send: Send) -> Tensor:
        vectors = self._encoder(self._layout(batch, send))
        return F.normalize(vectors) if params.get("normalize", True) else vectors


def _known(option: str, value: str, known: Mapping[str, object]) -> None:
    if value not in known:
        raise ValueError(f"options.{option} is {value!r}; there are: {', '.join(known)}")
