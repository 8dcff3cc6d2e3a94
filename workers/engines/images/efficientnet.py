"""EfficientNet-Lite0 (Tan and Le 2019; Lite: without squeeze-and-excitation, with ReLU6), with its
batch norms folded into the convolutions. It takes images of any size."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

_STAGES = (
    # (expansion, channels, blocks, stride, kernel)
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
_STEM, _HEAD, _CLASSES = 32, 1280, 1000  # channels
_MEAN, _SPREAD = 127.0, 128.0  # of the values of pixels in training


class EfficientNetLite0(nn.Module):
    """Maps UINT8 images [n, height, width, 3] to probabilities [n, 1000] of ImageNet's classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Conv(3, _STEM, 3, stride=2)
        self.blocks = nn.Sequential()
        before = _STEM
        for expansion, channels, blocks, stride, kernel in _STAGES:
            for n in range(blocks):
                self.blocks.append(
                    Block(before, channels, expansion, kernel, stride if n == 0 else 1)
                )
                before = channels
        self.head = Conv(before, _HEAD, 1)
        self.classifier = nn.Linear(_HEAD, _CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Returns float32 [n, 1000]."""
        return self.logits(images).softmax(1)

    def logits(self, images: Tensor) -> Tensor:
        """Returns float32 [n, 1000], before the softmax."""
        x = (images.permute(0, 3, 1, 2).float() - _MEAN) / _SPREAD  # channels last in memory
        x = F.relu6(self.stem(x), inplace=True)
        x = F.relu6(self.head(self.blocks(x)), inplace=True)
        scores: Tensor = self.classifier(x.mean((2, 3)))
        return scores


class Block(nn.Module):
    """Inverted residual: expands to more channels, convolves each by itself, and projects."""

    def __init__(
        self, before: int, channels: int, expansion: int, kernel: int, stride: int
    ) -> None:
        super().__init__()
        wide = before * expansion
        self.expand = Conv(before, wide, 1) if expansion > 1 else None
        self.depthwise = Conv(wide, wide, kernel, stride=stride, groups=wide)
        self.project = Conv(wide, channels, 1)
        self._adds = before == channels and stride == 1

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps [n, before, h, w] to [n, channels, h / stride, w / stride]."""
        x = inputs
        if self.expand is not None:
            x = F.relu6(self.expand(x), inplace=True)
        x = F.relu6(self.depthwise(x), inplace=True)
        projected: Tensor = self.project(x)
        return projected + inputs if self._adds else projected


class Conv(nn.Conv2d):
    """Convolution that pads as TensorFlow's SAME: the output has 1 / stride of the input, rounded
    up, and the larger half of the padding is at the end."""

    def __init__(
        self, before: int, after: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> None:
        own = kernel // 2 if stride == 1 else 0
        super().__init__(before, after, kernel, stride, own, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [n, before, h, w] to [n, after, h / stride, w / stride]."""
        if self.stride[0] > 1:
            x = F.pad(x, [*self._padding(x.shape[3]), *self._padding(x.shape[2])])
        return super().forward(x)

    def _padding(self, length: int) -> tuple[int, int]:
        step, kernel = self.stride[0], self.kernel_size[0]
        total = max((-(-length // step) - 1) * step + kernel - length, 0)
        return total // 2, total - total // 2
