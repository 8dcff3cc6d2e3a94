"""Images for tests: small ones that are what they say, and files that hurt who trusts them."""

import struct
import zlib
from base64 import b64encode
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

PNG = b"\x89PNG\r\n\x1a\n"


def picture(width: int = 80, height: int = 60) -> Image.Image:
    """Red grows to the right, green to the bottom, blue is 60: no turn leaves it as it is."""
    y, x = np.mgrid[0:height, 0:width]
    layers = [255 * x / width, 255 * y / height, np.full_like(x, 60)]
    return Image.fromarray(np.stack(layers, axis=2).astype(np.uint8))


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


SIZES = [(80, 60), (60, 80), (100, 100), (90, 160), (320, 160)]


def numbered(number: int) -> bytes:
    """A file of one of several sizes and kinds, unlike that of any other number below 256."""
    turned = picture(*SIZES[number % len(SIZES)]).point(lambda value: (value + number) % 256)
    return saved(turned, "JPEG" if number % 2 else "PNG")


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *chunks: bytes, depth: int = 8, color: int = 2) -> bytes:
    """PNG of these chunks; color: 0 grey, 2 RGB."""
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    return PNG + chunk(b"IHDR", head) + b"".join(chunks) + chunk(b"IEND", b"")


def png_of_16_bits() -> bytes:
    """RGB whose upper bytes are 200, 100, 50, and whose lower ones are 255."""
    row = b"\0" + bytes([200, 255, 100, 255, 50, 255]) * 4
    return png(4, 4, chunk(b"IDAT", zlib.compress(row * 4)), depth=16)


def bomb(width: int = 60_000, height: int = 60_000) -> bytes:
    """Small PNG that claims so many pixels."""
    return png(width, height, chunk(b"IDAT", zlib.compress(bytes(1000))))


def jpeg_bomb() -> bytes:
    """Small JPEG that claims 65,000 × 65,000 pixels."""
    data = bytearray(saved(picture(), "JPEG"))
    at = data.index(b"\xff\xc0") + 5  # of the frame's header: height, width
    data[at : at + 4] = struct.pack(">HH", 65_000, 65_000)
    return bytes(data)


def animated() -> bytes:
    return saved(picture(), save_all=True, append_images=[picture().rotate(90)])


def with_chunk(kind: bytes, data: bytes, times: int = 1) -> bytes:
    """Good PNG with a chunk before its pixels."""
    good = saved(picture())
    end = len(PNG) + 25  # behind IHDR
    return good[:end] + chunk(kind, data) * times + good[end:]


def hostile() -> Mapping[str, tuple[bytes, str]]:
    """Files by name, with a part of what is said of them."""
    jpeg, zeros = saved(picture(400, 300), "JPEG"), zlib.compress(bytes(20_000_000))
    many = b"k\0\0" + zlib.compress(bytes(1_000_000))
    grey, most = picture().convert("L"), "takes images of 50,000,000 pixels at most"
    truncated = saved(picture(400, 300))
    return {
        "empty": (b"", "takes a JPEG or a PNG"),
        "text": (b"hello, world", "takes a JPEG or a PNG"),
        "svg": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "takes a JPEG or a PNG"),
        "gif": (saved(grey, "GIF"), "takes a JPEG or a PNG"),
        "webp": (saved(picture(), "WEBP"), "takes a JPEG or a PNG"),
        "tiff": (saved(picture(), "TIFF"), "takes a JPEG or a PNG"),
        "bmp": (saved(picture(), "BMP"), "takes a JPEG or a PNG"),
        "jpeg of three bytes": (jpeg[:3], "can't read the header of this JPEG"),
        "jpeg without a frame": (jpeg[:20], "can't read the header of this JPEG"),
        "png signature alone": (PNG, "can't read the header of this PNG"),
        "png without pixels": (png(4, 4), "can't "),
        "truncated jpeg": (jpeg[: len(jpeg) // 2], "can't decode this JPEG"),
        "truncated png": (truncated[: len(truncated) // 2], "can't decode this PNG"),
        "png with a wrong checksum": (_flipped(truncated), "can't decode this PNG"),
        "png bomb": (bomb(), f"{most}; this one has 60000 × 60000"),
        "jpeg bomb": (jpeg_bomb(), "this one has 65000 × 65000"),
        "animated png": (animated(), "this PNG is animated"),
        "profile bomb": (with_chunk(b"iCCP", b"p\0\0" + zeros), "can't read the header"),
        "text bomb": (with_chunk(b"zTXt", b"k\0\0" + zeros), "can't read the header"),
        "many texts": (with_chunk(b"zTXt", many, 80), "can't read the header"),
        "scan bomb": (jpeg + b"\xff\xda" * 101, "takes a JPEG of 100 scans at most"),
    }


def _flipped(data: bytes) -> bytes:
    """PNG whose pixels have another checksum."""
    at = data.index(b"IDAT") + 20
    return data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]
