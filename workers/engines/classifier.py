"""Small image classifier with random weights, for measurements: its answers mean nothing."""

import torch
from torch import Tensor, nn

_CLASSES = 10


class RandomClassifier(nn.Module):
    """Maps UINT8 images [n, height, width, 3] to probabilities [n, classes]; seed determines the
    weights."""

    def __init__(self, seed: int = 0, classes: int = _CLASSES, width: int = 16) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.Sequential(
                nn.Conv2d(3, width, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(4 * width, classes),
            )

    def forward(self, images: Tensor) -> Tensor:
        """Returns float32 [n, classes]."""
        scores: Tensor = self.layers(images.permute(0, 3, 1, 2).float() / 255)
        return scores.softmax(1)
