"""Which places in S3 a tenant's jobs may name."""

import re

import pytest

from jobs.blobs import s3_locations
from jobs.blobs.s3_locations import S3Location
from jobs.errors import Untransferable
from tests.support.cases import each


def test_a_place_is_shown_as_it_was_written_and_what_is_none_is_told() -> None:
    for url in ("s3://bucket/key", "s3://bucket/a/b/", "s3://bucket/"):
        assert str(s3_locations.parse(url)) == url
    assert s3_locations.parse("s3://bucket") == S3Location("bucket", "")
    for folder in ("s3://bucket/out", "s3://bucket/out/"):
        assert str(s3_locations.parse(folder).below("x")) == "s3://bucket/out/x"
    assert str(s3_locations.parse("s3://bucket").below("x")) == "s3://bucket/x"
    cases = [
        ("https://bucket/key", "begin with s3://"),
        ("s3:/bucket/key", "begin with s3://"),
        ("s3:///key", "no name of a bucket"),
        ("s3://Bucket/key", "no name of a bucket"),
        ("s3://a@b/key", "no name of a bucket"),
        ("s3://bucket/a/../b", ". or .."),
        ("s3://bucket/..", ". or .."),
        ("s3://bucket/a\x00b", "has '\\x00' in it"),
        ("s3://bucket/a\\..\\b", "in it"),
        ("s3://bucket/" + "k" * 1025, "longer than"),
    ]
    for (url, says), case in each(cases):
        with case, pytest.raises(ValueError, match=re.escape(says)):
            s3_locations.parse(url)


ALLOWED = [
    ("bucket", "s3://bucket/any/thing"),
    ("bucket/a", "s3://bucket/a/key"),
    ("bucket/a/", "s3://bucket/a/key"),
    ("s3://bucket/a", "s3://bucket/a/key"),
    ("other, bucket/{tenant}", "s3://bucket/acme/key"),
    ("data-{tenant}", "s3://data-acme/key"),
]
REFUSED = [
    ("", "s3://bucket/key"),
    ("bucket", "s3://bucket2/key"),
    ("bucket/a", "s3://bucket/ab/key"),
    ("bucket/a", "s3://bucket/a"),
    ("bucket/{tenant}", "s3://bucket/acme2/key"),
    ("bucket/{tenant}", "s3://bucket/other/key"),
    ("bucket/{tenant}", "s3://bucket/key"),
    ("data-{tenant}", "s3://data-other/key"),
]


def test_what_is_allowed_and_how_to_allow_what_is_not_by_settings_that_mean_something() -> None:
    for (allow, url), case in each(ALLOWED):
        with case:
            s3_locations.check(s3_locations.parse(url), "acme", allow)
    for (allow, url), case in each(REFUSED):
        with case:
            with pytest.raises(Untransferable, match="MILLRACE_S3_ALLOW") as raised:
                s3_locations.check(s3_locations.parse(url), "acme", allow)
            assert raised.value.how == "not_allowed"
    for allow, case in each(["a", "/x", "bucket/..", "BUCKET", "bucket/a/./b", "{tenan}"]):
        with case, pytest.raises(ValueError, match=r"is no bucket|in it"):
            s3_locations.patterns(allow)


def test_the_platforms_own_blobs_are_never_allowed_but_what_is_beside_them() -> None:
    own = s3_locations.parse("s3://bucket/payloads/in/x")
    for blobs in ("s3://bucket/payloads", "s3://bucket"):
        with pytest.raises(Untransferable):
            s3_locations.check(own, "acme", "bucket", blobs)
    place = s3_locations.parse("s3://bucket/payloads2/x")
    s3_locations.check(place, "acme", "bucket", "s3://bucket/payloads")
    s3_locations.check(place, "acme", "bucket", "file:/var/payloads")
