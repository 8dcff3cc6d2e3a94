"""Fault of an operator: every process of the platform is replaced, as in a rolling upgrade."""

import socket
from contextlib import suppress
from random import Random

from jobs import clock
from ops.bench.chaos.faults import targets
from ops.bench.chaos.faults.targets import Proof, Stage, Steps, true, until
from ops.processes.children import Child, describe_exit

_UPGRADE = "upgrade"
_TURN_WITHIN_S = 600.0  # one takes about a minute
_UP_WITHIN_S = 120.0
_CONNECTED_WITHIN_S = 0.1


def rolling_upgrade(stage: Stage, dice: Random) -> Steps[Proof]:
    """Drains one process after another by SIGTERM, each once the one before is up again."""
    yield from true(lambda: _UPGRADE not in stage.busy, _TURN_WITHIN_S)
    with stage.holding(_UPGRADE):
        since_s, statuses = clock.monotonic(), dict[str, str]()
        for child in stage.fleet.supervisor.children:
            statuses[child.name] = yield from _replaced(stage, child)
    return {"wait_statuses": statuses, "took_s": round(clock.monotonic() - since_s, 3)}


def _replaced(stage: Stage, child: Child) -> Steps[str]:
    """Drains a process, and waits for the next one; returns the wait status."""
    yield from true(lambda: child.name not in stage.busy and _is_up(stage, child), _UP_WITHIN_S)
    process = child.process
    assert process
    with stage.holding(child.name), stage.fleet.draining(child):
        process.terminate()
        code = yield from until(process.poll)
    yield from true(lambda: child.process is not process and _is_up(stage, child), _UP_WITHIN_S)
    return describe_exit(code)


def _is_up(stage: Stage, child: Child) -> bool:
    """Returns True if an api listens, a worker is ready, or a keeper runs."""
    fleet = stage.fleet
    if not child.alive():
        return False
    if child in fleet.workers:
        return targets.has_ready_worker(stage, child)
    if child in fleet.apis:
        address = "127.0.0.1", fleet.ports[fleet.apis.index(child)]
        with suppress(OSError), socket.create_connection(address, _CONNECTED_WITHIN_S):
            return True
        return False
    return True
