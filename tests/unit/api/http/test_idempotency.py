"""Uploads under a key: one at a time, unless the one before went silent."""

from contextlib import ExitStack

import pytest
from fastapi import Request

from api.http.idempotency import Upload, Uploads
from jobs.errors import IdempotencyKeyInFlight
from tests.unit.api.conftest import Clock


def upload(
    query: str = "", kind: str = "application/json", key: str = "k", path: str = "/jobs"
) -> Upload:
    headers = [(b"content-type", kind.encode())]
    scope = {"type": "http", "path": path, "query_string": query.encode(), "headers": headers}
    scope["server"] = ("x", 80)
    return Upload(Request(scope), "default", key)


def refused(uploads: Uploads) -> None:
    with pytest.raises(IdempotencyKeyInFlight), uploads.alone(upload()):
        pass


def test_an_upload_is_alone_under_its_key_until_it_ends(time: Clock) -> None:
    uploads = Uploads()
    with uploads.alone(upload()):
        refused(uploads)
        with uploads.alone(upload(key="other")):
            pass
    with uploads.alone(upload()):
        pass


def test_an_upload_that_went_silent_gives_way_and_takes_nothing_with_it(time: Clock) -> None:
    uploads, ghost = Uploads(), upload()
    with ExitStack() as stack:
        with uploads.alone(ghost):
            time.now_s = 9
            ghost.add(b"x")
            time.now_s = 18
            refused(uploads)
            time.now_s = 20
            stack.enter_context(uploads.alone(upload()))
        refused(uploads)
    working = upload()
    with uploads.alone(working):
        working.finish()  # what is being worked on is never silent
        time.now_s = 10_000
        refused(uploads)


def test_a_request_is_the_same_by_type_query_and_body_however_it_is_cut() -> None:
    def fingerprint(made: Upload, *chunks: bytes) -> bytes:
        for chunk in chunks:
            made.add(chunk)
        return made.finish().fingerprint

    same = fingerprint(upload("a=1"), b"xy")
    assert fingerprint(upload("a=1", "Application/JSON; charset=utf-8"), b"x", b"y") == same
    others = [
        fingerprint(upload("a=2"), b"xy"),
        fingerprint(upload("a=1", "application/x-ndjson"), b"xy"),
        fingerprint(upload("a=1"), b"xyz"),
        fingerprint(upload(""), b"xy"),
        *(fingerprint(upload("a=1", path=path), b"xy") for path in ("/infer", "/v1/embeddings")),
    ]
    assert same not in others
    assert len(set(others)) == len(others)
    assert len(same) == 32
