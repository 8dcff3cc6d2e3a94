"""Images as they come in: files in base64, checked by their headers before a pixel is decoded.

Messages complete "the model …".
"""

import binascii
import re
from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

from jobs.models.inputs.images.shapes import Shape, pixels, shape_of

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

MAX_PIXELS = 50_000_000
"""Pixels of an image: a PNG of a few kilobytes can claim billions."""

_MAX_SCANS = 100  # of a progressive JPEG: each is a pass over all pixels
_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
_START_OF_SCAN = b"\xff\xda"
_DATA_URL = re.compile(r"data:[\w.+/-]*;base64,", re.IGNORECASE)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,15}://")
_ORIENTATION = 0x0112  # tag of EXIF
_UPRIGHT = 1
ON_ITS_SIDE = (5, 6, 7, 8)
"""EXIF orientations that swap width and height."""


class ImageError(ValueError):
    """Raised where an input is no image that can be served."""


def content(value: Any) -> bytes:
    """Returns the file of an image: of a text in base64, alone or as a `data:` URL; bytes as they
    are. Raises ImageError."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise ImageError("takes an image in base64, as a string")
    if _ADDRESS.match(value):
        raise ImageError("takes the image itself in base64, not an address of it")
    start = found.end() if (found := _DATA_URL.match(value)) else 0
    encoded = value[start:]
    if "\n" in encoded:  # base64 wraps lines
        encoded = "".join(encoded.split())
    try:
        return binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError as error:
        raise ImageError(f"takes an image in base64, which this is not: {error}") from None


def opened(data: bytes) -> "ImageFile":
    """Returns an image of which only the header was read. Raises ImageError for a file that is
    neither JPEG nor PNG, is animated, or has too many pixels."""
    from PIL.JpegImagePlugin import JpegImageFile
    from PIL.PngImagePlugin import PngImageFile

    if data.startswith(_JPEG):
        kind: type[ImageFile] = JpegImageFile
    elif data.startswith(_PNG):
        kind = PngImageFile
    else:
        raise ImageError("takes a JPEG or a PNG; this file is neither")
    try:
        image = kind(BytesIO(data))
    except Exception as error:  # Pillow raises many kinds
        raise ImageError(f"can't read the header of this {kind.format}: {error}") from error
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ImageError(
            f"takes images of {MAX_PIXELS:,} pixels at most; this one has {width} × {height}"
        )
    if getattr(image, "is_animated", False):
        raise ImageError("takes still images; this PNG is animated")
    if kind is JpegImageFile and (scans := data.count(_START_OF_SCAN)) > _MAX_SCANS:
        raise ImageError(f"takes a JPEG of {_MAX_SCANS} scans at most; this one has {scans}")
    return image


def orientation(image: "ImageFile") -> int:
    """Returns the EXIF orientation, 1 to 8; 1 (upright) where there is none that can be read."""
    from PIL.Image import Exif

    exif = Exif()
    try:
        exif.load(image.info.get("exif", b""))
        found = exif.get(_ORIENTATION, _UPRIGHT)
    except Exception:  # viewers show an image with broken EXIF as it is
        return _UPRIGHT
    return found if found in range(1, 9) else _UPRIGHT


def target_shape(image: "ImageFile") -> Shape:
    """Returns the shape that an image is resized to, once it is turned upright."""
    width, height = image.size
    if orientation(image) in ON_ITS_SIDE:
        width, height = height, width
    return shape_of(width, height)


def refuse(value: Any) -> str | None:
    """Returns what is wrong with an input, as far as its header tells, or None."""
    try:
        opened(content(value))
    except ImageError as error:
        return str(error)
    return None


def size(value: Any, *_: Mapping[str, Any]) -> int:
    """Returns the pixels of an image once it is resized. Raises ImageError."""
    return pixels(target_shape(opened(content(value))))
