"""Open streams are bounded for each tenant, and free their place however they end."""

import pytest

from api.gateway.streaming.open_streams import OpenStreams
from jobs.errors import QuotaExceeded


def test_a_tenant_has_so_many_and_another_its_own() -> None:
    streams = OpenStreams(1)
    with streams.opened("a"):
        with pytest.raises(QuotaExceeded) as refused, streams.opened("a"):
            pass
        with streams.opened("b"), streams.opened("a", resumed=True):
            pass
    assert refused.value.more["limit"]["name"] == "open_streams"
    with pytest.raises(RuntimeError), streams.opened("a"):
        raise RuntimeError
    with streams.opened("a"):
        pass
