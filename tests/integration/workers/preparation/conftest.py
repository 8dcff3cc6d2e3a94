from collections.abc import Iterator

import pytest

from tests.support.stores.s3 import S3, serving


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    with serving() as server:
        yield server
