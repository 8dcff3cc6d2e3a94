"""Shapes that images are resized to, by their aspect ratio.

Each is a length bucket: no launch mixes shapes. All have about the pixels of a square of 224, the
size that classifiers of ImageNet are trained for. Lanes know a bucket by its number alone: that is
the number of its pixels, so no two shapes may have the same.
"""

from math import log
from typing import TypeAlias

Shape: TypeAlias = tuple[int, int]
"""Width and height, pixels."""

SHAPES: tuple[Shape, ...] = (
    (224, 224),
    (256, 192),
    (288, 192),
    (296, 168),
    (320, 160),
    (200, 264),
    (184, 272),
    (168, 304),
    (160, 312),
)


def pixels(shape: Shape) -> int:
    """Returns the number of pixels of a shape, by which lanes know it."""
    return shape[0] * shape[1]


BUCKETS = tuple(sorted(map(pixels, SHAPES)))


def shape_of(width: int, height: int) -> Shape:
    """Returns the shape whose aspect ratio is nearest to that of an image."""
    return min(SHAPES, key=lambda shape: abs(log(shape[0] * height / (shape[1] * width))))
