"""Engine `image_classifier`: JPEG and PNG images to labels, with a network of torch."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from workers.engines.common import device as devices
from workers.engines.common.device import Send
from workers.engines.common.grouping import indexes_by
from workers.engines.common.networks import built
from workers.engines.common.user_code import Source
from workers.engines.encoders.heads import ranked
from workers.engines.images import lite0
from workers.engines.images.decoding import ImageDecoder
from workers.engines.protocol import DeviceFailed, Engine, Params, Permanent, Prepared

_TOP = 5  # labels of an answer
_TOLERANCE = 0.01  # of each probability, and of their sum

Pixels = NDArray[np.uint8]
"""One image, [height, width, 3]."""


class ImageClassifier(ImageDecoder, Engine):
    """Labels images. An output is [{"label", "score"}, …], the best first.

    `builtin` names a model that is fetched. Otherwise `file`, `module` and `file_sha256` name code,
    in which `build`, with `arguments`, makes a network that maps UINT8 [n, height, width, 3] to
    probabilities [n, classes]; `weights` and `sha256` are its weights, `labels` the names of its
    classes. `autocast` is "bfloat16" or "float16", in which products and convolutions are computed;
    "": as the network is. `device` is a torch device, `threads` torch's intra-op threads; None
    leaves them.

    Params: `top_k` (int, default 5), the most labels of an answer.
    """

    def __init__(
        self,
        *,
        builtin: str = "",
        build: str = "",
        arguments: Mapping[str, Any] | None = None,
        weights: str = "",
        sha256: str = "",
        labels: Sequence[str] = (),
        autocast: str = "",
        device: str | None = None,
        threads: int | None = None,
        **code: str,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self._device, self._autocast = devices.choose(device), autocast
        place = self._device.place
        self._source = None if builtin else Source(**code)
        self._labels: Sequence[str] = labels
        if self._source:
            network = built(place, self._source, build, arguments or {}, weights, sha256)
            self._network: nn.Module = network.forward
        else:
            self._network, self._labels = lite0.load(place)
        self._known: NDArray[np.float32] | None = None  # answer to the probe
        self._device.release()

    def run(self, batch: Sequence[Pixels], params: Params) -> Sequence[Any]:
        """Runs a launch; images of one shape are stacked."""
        outputs: list[Any] = [None] * len(batch)
        for indexes in indexes_by([image.shape for image in batch]):
            scores = self._scores(np.stack([batch[index] for index in indexes]))
            labels = self._labels or [str(n) for n in range(scores.shape[1])]
            answers = ranked(labels, scores, params.get("top_k", _TOP))
            for index, answer in zip(indexes, answers, strict=True):
                outputs[index] = answer
        return outputs

    def probe(self) -> None:
        """Labels a known image. Raises DeviceFailed where its probabilities don't sum up to one, or
        aren't those of the first time."""
        [image] = self.prepare(self.samples()[:1], {})
        assert isinstance(image, Prepared)
        [scores] = self._scores(image.data[None])
        if self._known is None:
            self._known = scores
        worst, total = float(np.abs(scores - self._known).max()), float(scores.sum())
        if not (worst <= _TOLERANCE and abs(total - 1) <= _TOLERANCE):  # or NaN
            raise DeviceFailed(
                f"the probabilities of a known image are {worst:.3g} off, their sum is {total:.3g}"
            )

    def memory_mb(self) -> float:
        """Returns the size of the weights, MiB."""
        return devices.weights_mb(self._network)

    def close(self) -> None:
        """Frees network and code."""
        del self._network
        if self._source:
            self._source.forget()
        self._device.release()

    def _scores(self, images: Pixels) -> NDArray[np.float32]:
        return self._device.run(partial(self._forward, images))

    def _forward(self, images: Pixels, send: Send) -> Tensor:
        with devices.autocast(self._autocast, self._device.place):
            scores = self._network(send(images))
        rows = len(images)
        if not isinstance(scores, Tensor) or scores.dim() != 2 or len(scores) != rows:
            raise Permanent(f"the network must return probabilities [{rows}, classes]")
        if self._labels and scores.shape[1] != len(self._labels):
            raise Permanent(f"there are {len(self._labels)} labels for {scores.shape[1]} classes")
        return scores.float()
