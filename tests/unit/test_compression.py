"""Who gets gzip, and that it can be read as it comes."""

import gzip
import zlib

import pytest

from api.compression import gzipped, wants_gzip


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("", False),
        ("gzip", True),
        ("GZip", True),
        ("x-gzip", True),
        ("*", True),
        ("deflate, gzip;q=1.0, *;q=0.5", True),
        ("gzip;q=0.001", True),
        ("br , gzip ; q=0.5", True),
        ("gzip;q=0.5, identity;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0.000, *", False),
        ("*;q=0", False),
        ("identity", False),
        ("identity;q=1, gzip;q=0.5", False),
        ("gzip;q=2", False),
        ("gzip;q=much", False),
        ("gzip;level=1", False),
        ("gzipped, br, deflate", False),
        (",,;q=1,", False),
    ],
)
def test_gzip_is_sent_where_it_is_asked_for(header: str, wanted: bool) -> None:
    assert wants_gzip(header) is wanted


@pytest.mark.parametrize("chunks", [[], [b""], [b"a\n"], [b"a\n" * 100_000, b"", b"b\n"]])
def test_what_is_compressed_reads_back(chunks: list[bytes]) -> None:
    assert gzip.decompress(b"".join(gzipped(chunks))) == b"".join(chunks)


def test_each_chunk_can_be_read_before_the_next_is_there() -> None:
    reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
    stream = gzipped(f"line {n}\n".encode() for n in range(3))
    assert [reader.decompress(next(stream)) for _ in range(3)] == [
        b"line 0\n",
        b"line 1\n",
        b"line 2\n",
    ]
