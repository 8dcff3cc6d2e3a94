"""The package index, as tests of engines have it."""

import pytest


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index on a port of loopback where nobody listens."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
