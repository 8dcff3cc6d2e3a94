"""Parts of stored files, by which a broken download goes on: ranges, tags, HEAD."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import httpx
import pytest

from ops.supervisor.platform import Platform
from tests.support.clients import http_of
from tests.support.platforms import CLOSED

PLATFORM = CLOSED
CONTENT = b"0123456789"


@pytest.fixture
def http(platform: Platform) -> Iterator[httpx.Client]:
    with http_of(platform, "file-ranges") as http:
        yield http


@pytest.fixture
def path(http: httpx.Client) -> str:
    form: Any = {"data": {"purpose": "user_data"}, "files": {"file": ("a.bin", CONTENT)}}
    return f"/v1/files/{http.post('/v1/files', **form).json()['id']}/content"


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-3", 0, 4),
        ("bytes=4-", 4, 10),
        ("bytes=-3", 7, 10),
        ("bytes=9-99", 9, 10),
        ("bytes=-99", 0, 10),
        ("Bytes = 2 - 2", 2, 3),
    ],
)
def test_a_range_of_a_file_is_sent_alone(
    http: httpx.Client, path: str, asked: str, start: int, end: int
) -> None:
    part = http.get(path, headers={"Range": asked})
    assert (part.status_code, part.content) == (206, CONTENT[start:end])
    assert part.headers["content-range"] == f"bytes {start}-{end - 1}/10"
    assert part.headers["content-length"] == str(end - start)


@pytest.mark.parametrize("asked", ["bytes=0-1,3-4", "bytes=-", "bytes=5-2", "lines=1-2", "bytes"])
def test_other_ranges_are_ignored(http: httpx.Client, path: str, asked: str) -> None:
    whole = http.get(path, headers={"Range": asked})
    assert (whole.status_code, whole.content) == (200, CONTENT)
    assert "content-range" not in whole.headers


@pytest.mark.parametrize("asked", ["bytes=10-", "bytes=10-12", "bytes=-0"])
def test_a_range_without_a_byte_of_the_file_is_refused(
    http: httpx.Client, path: str, asked: str
) -> None:
    refused = http.get(path, headers={"Range": asked})
    assert refused.status_code == 416
    assert refused.headers["content-range"] == "bytes */10"
    assert refused.json()["error"]["code"] == "range_not_satisfiable"


def test_a_download_goes_on_while_the_file_is_the_same(http: httpx.Client, path: str) -> None:
    head = http.head(path)
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "10")
    assert head.headers["accept-ranges"] == "bytes"
    tag = head.headers["etag"]
    assert tag == f'"{sha256(CONTENT).hexdigest()}"'
    rest = {"Range": "bytes=6-"}
    assert http.get(path, headers={**rest, "If-Range": tag}).content == CONTENT[6:]
    assert http.head(path, headers=rest).status_code == 206
    for other in ('"other"', f"W/{tag}", "Sat, 28 Nov 2026 00:00:00 GMT"):
        assert http.get(path, headers={**rest, "If-Range": other}).content == CONTENT
    for known in (tag, f'"other", W/{tag}', "*"):
        unchanged = http.get(path, headers={"If-None-Match": known})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert http.get(path, headers={"If-None-Match": '"other"'}).content == CONTENT


def test_the_headers_of_a_file_are_its_tenants_alone(platform: Platform, path: str) -> None:
    assert httpx.head(platform.url + path).status_code == 401
    with http_of(platform, "other-ranges") as other:
        assert other.head(path).status_code == 404
    with http_of(platform, "file-ranges", scopes=frozenset({"submit"})) as unreading:
        assert unreading.head(path).status_code == 403
