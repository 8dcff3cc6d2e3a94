"""Headers of images: what is refused before a pixel is decoded, and the shape that follows."""

from base64 import encodebytes
from typing import Any

import pytest
from PIL import Image

from jobs.models.inputs.images import header
from jobs.models.inputs.images.header import MAX_PIXELS, ImageError
from jobs.models.inputs.images.shapes import BUCKETS, SHAPES, pixels, shape_of
from tests.support.cases import each
from tests.support.models import images

HOSTILE = images.hostile()
OF_PIXELS = {"truncated jpeg", "truncated png", "png with a wrong checksum", "png without pixels"}


def test_it_is_refused_by_its_header_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_: Any) -> None:
        pytest.fail("a pixel was decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    for name, case in each(sorted(HOSTILE.keys() - OF_PIXELS)):
        with case:
            data, said = HOSTILE[name]
            assert said in (header.refuse(images.encoded(data)) or "")


def test_what_is_no_image_is_told_what_is_taken() -> None:
    cases = [
        (None, "takes an image in base64, as a string"),
        (5, "takes an image in base64, as a string"),
        (["iVBORw0KGgo="], "takes an image in base64, as a string"),
        ({"image": "iVBORw0KGgo="}, "takes an image in base64, as a string"),
        ("not base64!", "which this is not"),
        ("iVBORw0KGg", "which this is not"),
        ("Grüße", "which this is not"),
        ("https://example.com/a.png", "not an address of it"),
        ("s3://bucket/a.png", "not an address of it"),
        ("", "takes a JPEG or a PNG"),
    ]
    for (value, said), case in each(cases):
        with case:
            assert said in (header.refuse(value) or "")


def test_an_image_may_come_as_base64_wrapped_as_a_url_or_as_bytes() -> None:
    for kind in ("PNG", "JPEG"):
        data = images.saved(images.picture(), kind)
        texts = [images.encoded(data), encodebytes(data).decode()]
        texts.append(f"data:image/{kind.lower()};base64,{texts[0]}")
        for value in (*texts, data):
            assert header.refuse(value) is None
            assert header.content(value) == data


def test_a_photo_on_its_side_has_the_shape_of_the_upright_one_and_the_bound_is_on_pixels() -> None:
    sizes = {}
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        data = images.saved(images.picture(400, 300), "JPEG", exif=exif)
        sizes[orientation] = header.size(images.encoded(data))
    lying, standing = pixels((256, 192)), pixels((200, 264))
    assert sizes == {n: standing if n > 4 else lying for n in range(1, 9)}
    assert header.opened(images.bomb(MAX_PIXELS, 1)).size == (MAX_PIXELS, 1)
    with pytest.raises(ImageError, match="pixels at most"):
        header.opened(images.bomb(MAX_PIXELS + 1, 1))


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0", b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\xff"]
)
@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_broken_exif_leaves_an_image_as_it_is(exif: bytes) -> None:
    data = images.saved(images.picture(400, 300), "JPEG", exif=exif)
    assert header.size(images.encoded(data)) == pixels((256, 192))


def test_an_image_gets_the_shape_of_the_nearest_aspect_ratio() -> None:
    cases = [
        ((1, 1), (224, 224)),
        ((640, 427), (288, 192)),
        ((427, 640), (184, 272)),
        ((4000, 3000), (256, 192)),
        ((3000, 4000), (200, 264)),
        ((1920, 1080), (296, 168)),
        ((1080, 1920), (168, 304)),
        ((10_000, 10), (320, 160)),
        ((10, 10_000), (160, 312)),
    ]
    for (size, shape), case in each(cases):
        with case:
            assert shape_of(*size) == shape
    assert len(set(BUCKETS)) == len(SHAPES), "no two have the same number of pixels"
    assert max(BUCKETS) < 1.15 * min(BUCKETS)
