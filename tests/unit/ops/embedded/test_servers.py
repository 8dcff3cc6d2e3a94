"""Restarts of embedded servers, and the ballast on their disk."""

import os
import signal
from pathlib import Path

import pytest

from ops.embedded.ballast import Ballast
from ops.embedded.errors import EmbeddedError
from ops.embedded.server import Server
from ops.embedded.servers import EmbeddedServers
from ops.processes.children import Started


def test_a_failing_server_delays_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers, started = EmbeddedServers(tmp_path), list[str]()

    def start(server: Server) -> None:
        started.append(server.name)
        if server is servers.postgres:
            raise EmbeddedError("no space left")

    monkeypatch.setattr(servers.postgres, "start", lambda: start(servers.postgres))
    monkeypatch.setattr(servers.redis, "start", lambda: start(servers.redis))
    servers.poll(kept_down=["redis"])
    servers.poll()
    assert started == ["postgres", "redis"]


def test_an_empty_ballast_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.embedded.ballast.MOST_BYTES", 4096)
    ballast = Ballast(tmp_path)
    ballast.path.touch()  # as after a kill in the middle
    ballast.keep()
    assert ballast.path.stat().st_size == 4096
    assert [each.name for each in tmp_path.iterdir()] == ["ballast"]


@pytest.mark.heavy
def test_a_server_that_the_kernel_keeps_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SIGKILL has to wait too where a process waits for a disk that doesn't answer."""
    monkeypatch.setattr("ops.embedded.server.STOP_WITHIN_S", 0.01)
    server = EmbeddedServers(tmp_path).redis
    server.process = process = Started(["sleep", "100"])
    monkeypatch.setattr(process, "send_signal", lambda _: None)
    monkeypatch.setattr(process, "kill", lambda: None)
    server.stop()
    assert f"redis (pid {process.pid}) doesn't end" in caplog.text
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
