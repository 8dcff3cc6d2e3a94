"""Responses of JSON that is encoded already."""

from starlette.responses import Response

from api.http import bodies
from api.http.responses import JsonBytes


def test_json_bytes_are_sent_as_starlette_sends_them() -> None:
    body, headers = b'{"output": "caf\xc3\xa9"}', {"X-Millrace-Model": "echo@1", "ETag": '"\xe9"'}
    ours = JsonBytes(body, headers, 202)
    theirs = Response(body, 202, headers, media_type=bodies.JSON)
    assert ours.status_code == theirs.status_code == 202
    assert ours.body == theirs.body
    assert sorted(ours.raw_headers) == sorted(theirs.raw_headers)


def test_headers_can_be_added_later() -> None:
    response = JsonBytes(b"{}", {})
    response.headers["Retry-After"] = "1"
    assert (b"retry-after", b"1") in response.raw_headers
