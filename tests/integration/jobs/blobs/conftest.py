"""Both blob stores: a folder, and S3 as moto serves it."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from jobs.blobs.store import BlobStore, open_store
from jobs.settings import Settings

BUCKET = "millrace-test"
_numbers = itertools.count()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.delenv("AWS_PROFILE", raising=False)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def s3(s3_endpoint: str) -> Any:
    """A plain client, with a bucket."""
    client = boto3.client("s3", endpoint_url=s3_endpoint, region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    return client


@pytest.fixture(params=["file", "s3"])
def blob_settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Settings with a blob store of either kind."""
    if request.param == "file":
        return Settings(blobs=f"file:{tmp_path}/blobs")
    request.getfixturevalue("s3")
    endpoint = request.getfixturevalue("s3_endpoint")
    return Settings(blobs=f"s3://{BUCKET}/tests/{next(_numbers)}", s3_endpoint=endpoint)


@pytest.fixture
def store(blob_settings: Settings) -> BlobStore:
    return open_store(blob_settings.blobs, blob_settings.s3_endpoint)
