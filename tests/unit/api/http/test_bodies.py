"""Bodies: who gets gzip, readable as it comes, and which are parsed beside other requests."""

import asyncio
import gzip
import io
import random
import sys
import zlib
from contextlib import nullcontext

import pytest
from fastapi import Request
from starlette.types import Message

from api.http import bodies
from api.http.compression import compress, gzip_stream, wants_gzip
from jobs.errors import Malformed, TooLarge, UnsupportedMedia

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

WANTED = [
    "gzip", "GZip", "x-gzip", "*", "deflate, gzip;q=1.0, *;q=0.5", "gzip;q=0.001",
    "br , gzip ; q=0.5", "gzip;q=0.5, identity;q=0.5",
]  # fmt: skip
UNWANTED = [
    "", "gzip;q=0", "gzip;q=0.000, *", "*;q=0", "identity", "identity;q=1, gzip;q=0.5", "gzip;q=2",
    "gzip;q=much", "gzip;level=1", "gzipped, br, deflate", ",,;q=1,",
]  # fmt: skip


def expanded(sent: bytes, coding: str, most: int, piece: int = 1 << 16) -> bytes:
    """A body that comes in pieces, as a handler reads it."""
    starts = range(0, max(1, len(sent)), piece)
    parts = iter([(sent[at : at + piece], at + piece < len(sent)) for at in starts])

    async def receive() -> Message:
        body, more = next(parts)
        return {"type": "http.request", "body": body, "more_body": more}

    async def read() -> bytes:
        headers = [(b"content-type", b"application/json"), (b"content-encoding", coding.encode())]
        request = Request({"type": "http", "headers": headers}, receive)
        bodies.media_type(request, bodies.JSON)
        return b"".join([chunk async for chunk in bodies.chunks(request, most)])

    return asyncio.run(read())


def test_gzip_is_sent_where_it_is_asked_for_and_other_codings_are_refused() -> None:
    assert [header for header in WANTED if not wants_gzip(header)] == []
    assert [header for header in UNWANTED if wants_gzip(header)] == []
    assert expanded(BODY, "identity", len(BODY)) == BODY
    for coding in ("br", "gzip, deflate", "x"):
        with pytest.raises(UnsupportedMedia):
            expanded(BODY, coding, len(BODY))


@pytest.mark.parametrize("chunks", [[], [b""], [b"a\n"], [b"a\n" * 100_000, b"", b"b\n"]])
def test_what_is_compressed_reads_back(chunks: list[bytes]) -> None:
    assert gzip.decompress(b"".join(gzip_stream(chunks))) == b"".join(chunks)


def test_each_chunk_can_be_read_before_the_next_is_there() -> None:
    reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
    lines = [b"line 0\n", b"line 1\n", b"line 2\n"]
    stream = gzip_stream(iter(lines))
    assert [reader.decompress(next(stream)) for _ in lines] == lines


BODY = b"a body that is worth it " * 100


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [("", ""), ("br", ""), ("gzip", "gzip"), ("deflate", "deflate"), ("deflate, gzip", "gzip"),
     ("deflate;q=0", ""), ("identity, deflate;q=0.5", "")],
)  # fmt: skip
def test_a_body_is_compressed_as_asked_for_and_comes_back(accepted: str, coding: str) -> None:
    sent, said = compress(BODY, accepted)
    assert said == coding
    assert (len(sent) < len(BODY)) == bool(coding)
    for piece in (1, 7, 1 << 16):
        assert expanded(sent, said, len(BODY), piece) == BODY
    assert compress(b"short", accepted) == (b"short", "")


def in_coding(body: bytes, coding: str) -> bytes:
    return zstd.compress(body) if coding == "zstd" else compress(body, coding)[0]


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
def test_a_body_that_is_too_large_or_not_what_it_says_is_refused(coding: str) -> None:
    large = bytes(10_000_000)
    sent = in_coding(large, coding)
    assert len(sent) < 100_000
    with pytest.raises(TooLarge, match="more than 1,000 bytes"):
        expanded(sent, coding, 1000)
    for piece in (7, 1 << 16):
        assert expanded(sent, coding, len(large), piece) == large
    sent = in_coding(BODY, coding)
    for wrong in (BODY, sent[:-1], sent + b"more", b"\x1f"):
        with pytest.raises(Malformed):
            expanded(wrong, coding, len(BODY))


@pytest.mark.parametrize("size", [1 << 18, 3 << 18, (1 << 18) + 1])
def test_a_body_whose_last_piece_is_full_ends(size: int) -> None:
    body = bytes(size)
    for coding in ("gzip", "zstd"):
        assert expanded(in_coding(body, coding), coding, size) == body
        with pytest.raises(Malformed):
            expanded(in_coding(body, coding) + b"more", coding, size)


def test_a_window_over_eight_mebibytes_is_refused() -> None:
    body = random.Random(0).randbytes(9 << 20)  # longer than the window, which is declared then
    for log, refused in ((23, False), (24, True)):
        options: dict[int, int] = {zstd.CompressionParameter.window_log: log}
        compressor = zstd.ZstdCompressor(options=options)
        sent = compressor.compress(body) + compressor.flush()
        words = r"window over 8 MiB.*--long"
        expected = pytest.raises(Malformed, match=words) if refused else nullcontext()
        with expected:
            assert expanded(sent, "zstd", len(body)) == body


def test_long_bodies_are_heavy_and_so_are_many_values() -> None:
    for body, heavy in (
        (b'{"model": "echo", "input": "x"}', False),
        (b'"' + b"x" * 65_000 + b'"', False),
        (b'"' + b"x" * 65_536 + b'"', True),
        (b"[" + b"1," * 4000 + b"1]", False),
        (b"[" + b"[]," * 4000 + b"[]]", True),
        (b"{" + b'"a":1,' * 4000 + b'"b":1}', True),
        (b"{" * 5000, True),
    ):
        assert bodies.is_heavy(body) is heavy, body[:30]
        file = io.BytesIO(body)
        assert bodies.is_heavy_file(file) is heavy
        assert file.tell() == 0
    assert bodies.is_heavy(b"x" * 9000, 8192), "texts that are tokenized are so sooner"
    assert not bodies.is_heavy(b"x" * 8000, 8192)
