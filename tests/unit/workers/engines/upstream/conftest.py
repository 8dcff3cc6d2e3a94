"""An upstream that each test has for itself."""

from collections.abc import Iterator

import pytest

from tests.support.servers.upstream import Upstream, serving


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with serving() as started:
        yield started
