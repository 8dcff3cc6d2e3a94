"""A tenant that sends refused and valid bodies, imports, reads, verbs and calls as fast as its
connections allow holds up no other: `millrace bench isolation`, in small."""

import pytest

from ops.bench.harness.child_process import child
from ops.bench.load.light import probe
from ops.supervisor.platform import Platform
from tests.support.keys import make_key_at
from tests.support.platforms import spec
from tests.support.wait import slowdown

pytestmark = pytest.mark.nightly

PLATFORM = spec(is_closed=True)
"""One of its own: whatever it is refused for depends on the limits of bodies."""
_SECONDS = 4.0
_STALL_MS = 1000.0  # a refused body of 3.6 MB alone stalled an api for longer


def test_it_holds_up_no_other_tenant(platform: Platform) -> None:
    hostile_key, _ = make_key_at(platform.settings.database_url, "hostile")
    light_key, _ = make_key_at(platform.settings.database_url, "light")
    with child("ops.bench.load.hostile", platform.url, hostile_key) as hostile:
        hostile.receive()
        took_ms = probe(platform.url, light_key, _SECONDS)  # raises for whatever isn't answered
        hostile.end_input()
        counts = hostile.receive()
    assert max(took_ms["livez"]) < _STALL_MS * slowdown()
    assert counts["refused bodies"].keys() & {"400", "413", "422"}, counts
