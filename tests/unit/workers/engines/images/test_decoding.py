"""Images as arrays: every mode in its own colours, upright, without what hurts."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.support.models import images
from workers.engines.images.decoding import ImageDecoder, decode
from workers.engines.protocol import InvalidInput, Prepared

HOSTILE = images.hostile()


def color_of(data: bytes) -> list[int]:
    """The colour of the middle of an image."""
    array = decode(data)
    found: list[int] = array[array.shape[0] // 2, array.shape[1] // 2].tolist()
    return found


def close(one: NDArray[np.uint8], other: NDArray[np.uint8], most: float) -> bool:
    """True if two images differ by so much in the mean."""
    return bool(np.abs(one.astype(int) - other.astype(int)).mean() <= most)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_its_place(name: str) -> None:
    data, said = HOSTILE[name]
    good = images.encoded(images.saved(images.picture()))
    made = ImageDecoder().prepare([good, images.encoded(data), good], {})
    assert [type(one) for one in made] == [Prepared, InvalidInput, Prepared]
    assert said in str(made[1])


@pytest.mark.parametrize(
    ("size", "shape"),
    [((80, 60), (192, 256, 3)), ((300, 300), (224, 224, 3)), ((750, 1000), (264, 200, 3))],
)
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_an_image_is_resized_to_its_shape(
    size: tuple[int, int], shape: tuple[int, int, int], kind: str
) -> None:
    [prepared] = ImageDecoder().prepare([images.saved(images.picture(*size), kind)], {})
    assert prepared.size == shape[0] * shape[1]
    array = prepared.data
    assert (type(array), array.dtype, array.shape) == (np.ndarray, np.uint8, shape)
    assert close(array, np.asarray(images.picture(shape[1], shape[0])), 4)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_it_is_turned_upright(orientation: int, kind: str) -> None:
    turns = Image.Transpose
    stored = [  # how a camera that was held so stores it, from orientation 2 on
        turns.FLIP_LEFT_RIGHT, turns.ROTATE_180, turns.FLIP_TOP_BOTTOM, turns.TRANSPOSE,
        turns.ROTATE_90, turns.TRANSVERSE, turns.ROTATE_270,
    ]  # fmt: skip
    upright = images.picture(640, 480)
    image = upright.transpose(stored[orientation - 2]) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    array = decode(images.saved(image, kind, exif=exif))
    assert close(array, np.asarray(images.picture(256, 192)), 3)


def one_color(mode: str, color: Any, **options: Any) -> bytes:
    return images.saved(Image.new(mode, (64, 64), color), **options)


@pytest.mark.parametrize(
    ("data", "color"),
    [
        (one_color("1", 1), [255, 255, 255]),
        (one_color("L", 77), [77, 77, 77]),
        (one_color("P", 0), [0, 0, 0]),
        (one_color("LA", (10, 0)), [255, 255, 255]),
        (one_color("LA", (10, 255)), [10, 10, 10]),
        (one_color("RGBA", (10, 20, 30, 255)), [10, 20, 30]),
        (one_color("RGBA", (255, 0, 0, 0)), [255, 255, 255]),
        (one_color("RGBA", (255, 0, 0, 128)), [255, 127, 127]),
        (one_color("RGB", (1, 2, 3), transparency=(1, 2, 3)), [255, 255, 255]),
        (one_color("I;16", 200 * 256 + 99), [200, 200, 200]),
        (images.png_of_16_bits(), [200, 100, 50]),
    ],
)
def test_every_mode_of_png_has_its_colours(data: bytes, color: list[int]) -> None:
    assert color_of(data) == color


@pytest.mark.parametrize("mode", ["CMYK", "L", "RGB"])
def test_every_mode_of_jpeg_has_its_colours(mode: str) -> None:
    image = Image.new("RGB", (64, 64), (200, 200, 200)).convert(mode)
    assert color_of(images.saved(image, "JPEG")) == pytest.approx([200, 200, 200], abs=2)


def test_a_progressive_jpeg_is_taken() -> None:
    data = images.saved(images.picture(400, 300), "JPEG", progressive=True)
    assert close(decode(data), np.asarray(images.picture(256, 192)), 3)


@pytest.mark.heavy
def test_decoding_needs_no_torch() -> None:
    code = "import sys, workers.engines.images.decoding; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
