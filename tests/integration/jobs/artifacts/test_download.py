"""Downloads that break off, and go on."""

from hashlib import sha256
from pathlib import Path

import pytest

from jobs import clock
from jobs.artifacts import progress
from jobs.artifacts.declared import Untrusted
from jobs.artifacts.download import download
from tests.support.cases import each
from tests.support.servers.file_server import FileServer

CONTENT = bytes(range(256)) * 4096
DIGEST = sha256(CONTENT).hexdigest()
HALF = len(CONTENT) // 2
QUIET_S = 60.0


def test_a_download_is_continued_at_its_byte_and_is_right_whatever_its_beginning_was(
    tmp_path: Path,
) -> None:
    cases: list[tuple[bytes, bool, list[int], list[str]]] = [
        (b"", True, [], [""]),
        (CONTENT[:HALF], True, [], [f"bytes={HALF}-"]),
        (CONTENT[:HALF], False, [], [f"bytes={HALF}-"]),  # the server sends all of it
        (b"", True, [HALF, 1000], ["", f"bytes={HALF}-", f"bytes={HALF + 1000}-"]),
        (CONTENT, True, [], []),
        (CONTENT[1:], True, [], [f"bytes={len(CONTENT) - 1}-", ""]),  # of another file
        (CONTENT + b"more", True, [], [f"bytes={len(CONTENT) + 4}-", ""]),
    ]
    for (begun, ranges, cuts, ranges_asked), case in each(cases):
        part = tmp_path / "a.part"
        part.write_bytes(begun)
        with case, FileServer({"/a": CONTENT}, ranges=ranges) as server:
            server.cuts = cuts
            download(f"{server.origin}/a", part, DIGEST, quiet_s=QUIET_S)
            assert part.read_bytes() == CONTENT
            assert [asked for _, asked in server.asked] == ranges_asked


def test_one_that_brings_nothing_more_fails_and_keeps_what_there_is(tmp_path: Path) -> None:
    part, told = tmp_path / "a.part", list[float]()
    with FileServer({"/a": CONTENT}) as server:
        server.cuts = [HALF, 0]
        with (
            pytest.raises(OSError, match="broke off"),
            progress.reported_to(lambda: told.append(clock.monotonic())),
        ):
            download(f"{server.origin}/a", part, DIGEST, quiet_s=QUIET_S)
        assert part.read_bytes() == CONTENT[:HALF]
        assert told
        server.cuts, server.stands_still = [1000, 0], True  # the second connection brings nothing
        with pytest.raises(OSError, match="timed out"):
            download(f"{server.origin}/a", part, DIGEST, quiet_s=0.2)
        assert part.stat().st_size >= HALF


def test_another_file_is_refused(tmp_path: Path) -> None:
    with FileServer({"/a": CONTENT[1:]}) as server, pytest.raises(Untrusted, match="SHA-256"):
        download(f"{server.origin}/a", tmp_path / "a.part", DIGEST, quiet_s=QUIET_S)
    assert not list(tmp_path.iterdir())
