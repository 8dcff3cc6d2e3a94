"""What `millrace workers` says of one."""

import pytest

from ops.cli.commands.admin.workers import line

WORKER = {
    "id": 7, "name": "vm:5", "pool": "default", "device": "auto", "state": "ready", "died": None,
    "drain_asked": False, "models": [{"model": "m@1", "state": "ready"}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "7  vm:5  default  auto  ready  m@1:ready"),
        ({"drain_asked": True}, "7  vm:5  default  auto  ready  drain asked  m@1:ready"),
        ({"state": "lost", "died": "killed"}, "7  vm:5  default  auto  lost  killed"),
        (
            {"state": "quarantined", "died": "sick", "drain_asked": True, "device_error": "ECC"},
            "7  vm:5  default  auto  quarantined  sick  ECC",
        ),
        ({"state": "stopped"}, "7  vm:5  default  auto  stopped"),
    ],
)
def test_a_worker_that_ended_has_no_model_ready(changed: dict[str, object], said: str) -> None:
    assert line(WORKER | changed) == said
