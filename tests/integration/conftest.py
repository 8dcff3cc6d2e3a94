"""Fixtures of all tests on real servers."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Coroutines marked `anyio` run on asyncio, with their fixtures on the same loop."""
    return "asyncio"
