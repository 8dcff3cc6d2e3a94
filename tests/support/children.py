"""Processes of a platform by name: killed, replaced, or waited for as `millrace up` does it."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import httpx

from ops.embedded.server import Server
from ops.processes.children import Child
from ops.processes.ports import free_port
from ops.supervisor.platform import Platform
from tests.support.wait import eventually

T = TypeVar("T")


def child_of(platform: Platform, name: str = "worker-1") -> Child:
    """A process of a platform by its name: api, keeper, worker-1, prepare-1, …"""
    [found] = [child for child in platform.supervisor.children if child.name == name]
    return found


def pid_of(platform: Platform, name: str = "worker-1") -> int:
    pid = child_of(platform, name).pid
    assert pid
    return pid


def kill(platform: Platform, name: str = "worker-1") -> int:
    """Kills a process of a platform; returns the pid that it had."""
    pid = pid_of(platform, name)
    os.kill(pid, signal.SIGKILL)
    return pid


def kill_and_replace(platform: Platform, name: str) -> None:
    """Kills a process, and waits for the next one, which the supervisor starts."""
    killed = kill(platform, name)
    child = child_of(platform, name)
    until(platform, lambda: child.pid != killed and child.alive())


def kill_server(server: Server) -> None:
    """Kills a database like a machine that is lost: nothing is said, nothing is written."""
    assert server.process
    server.process.kill()
    server.process.wait()


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Stops processes in their tracks until the block ends."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def until(platform: Platform, look: Callable[[], T]) -> T:
    """Waits, and starts again what ends meanwhile, as `millrace up` does."""
    return eventually(lambda: (platform.poll(), look())[1])


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """Freezes a database until the block ends: it acknowledges packets, and answers nothing."""
    assert server.process
    main = server.process.pid
    with stopped(main):  # it starts no other now
        found = Path(f"/proc/{main}/task/{main}/children").read_text()
        with stopped(*map(int, found.split())):
            yield


@contextmanager
def second_api(platform: Platform) -> Iterator[Child]:
    """A second api of a platform, whose address is its name."""
    own = platform.settings.evolve(port=free_port())
    url = f"http://{own.host}:{own.port}"
    log = platform.settings.home / "logs" / "api-2.log"
    child = Child(url, [sys.executable, "-m", "api"], own.environment(), log)
    child.start()
    try:
        eventually(lambda: answers(url))
        yield child
    finally:
        child.terminate()
        eventually(lambda: not child.alive())


def answers(url: str, path: str = "/readyz") -> bool:
    try:
        return httpx.get(url + path).is_success
    except httpx.TransportError:
        return False
