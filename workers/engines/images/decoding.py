"""Images as arrays: decoded, turned upright, resized to their shape. Needs no torch."""

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from jobs.models.inputs.images import header
from jobs.models.inputs.images.header import ImageError
from jobs.models.inputs.images.shapes import SHAPES, Shape, pixels
from workers.engines.protocol import InvalidInput, Params, Prepared, PreparedInputs, Preparer

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Ways to turn an image upright, by its EXIF orientation."""


class ImageDecoder(Preparer):
    """Prepares images, as `Engine.prepare`."""

    def prepare(self, inputs: Sequence[Any], params: Params) -> PreparedInputs:
        """Decodes images: files in base64, or their bytes. Data is what `decode` returns, sizes are
        its pixels."""
        return [_prepared(value) for value in inputs]

    def samples(self) -> Sequence[str]:
        """Returns images of three shapes, in base64: the square, and those with the fewest and the
        most pixels."""
        shapes = SHAPES[0], min(SHAPES, key=pixels), max(SHAPES, key=pixels)
        return [_gradient(shape) for shape in shapes]


def _prepared(value: Any) -> Prepared | InvalidInput:
    try:
        array = decode(header.content(value))
    except ImageError as error:
        return InvalidInput(f"the model {error}")
    height, width, _ = array.shape
    return Prepared(pixels((width, height)), array)


def decode(data: bytes) -> NDArray[np.uint8]:
    """Decodes a JPEG or PNG to its shape, uint8 [height, width, 3], RGB.

    The middle of the image fills the shape: little is cut where their aspect ratios are close. What
    is transparent is white. Raises ImageError.
    """
    image = header.opened(data)
    orientation = header.orientation(image)
    shape = header.target_shape(image)
    turned = shape[::-1] if orientation in header.ON_ITS_SIDE else shape
    image.draft("RGB", (2 * turned[0], 2 * turned[1]))  # a large JPEG is decoded at a fraction
    try:
        image.load()
    except Exception as error:  # Pillow raises many kinds
        raise ImageError(f"can't decode this {image.format}: {error}") from error
    fitted = _opaque(ImageOps.fit(_resizable(image), turned, Image.Resampling.BICUBIC))
    if orientation in _TURNS:
        fitted = fitted.transpose(_TURNS[orientation])
    return np.array(fitted)


def _resizable(image: Image.Image) -> Image.Image:
    """Returns an image in a mode whose pixels can be averaged: RGB, RGBA or L."""
    if image.mode.startswith("I"):  # 16 bits of grey, which Pillow would clip to 8
        image = Image.fromarray((np.asarray(image, np.uint32) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        return image.convert("RGBA")
    return image if image.mode in ("RGB", "L") else image.convert("RGB")


def _gradient(shape: Shape) -> str:
    """Returns a PNG in base64."""
    file = BytesIO()
    Image.linear_gradient("L").resize(shape).save(file, "PNG")
    return b64encode(file.getvalue()).decode()


def _opaque(image: Image.Image) -> Image.Image:
    if image.mode != "RGBA":
        return image.convert("RGB")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image).convert("RGB")
