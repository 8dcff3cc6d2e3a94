"""Restarts of embedded servers, the ballast on their disk, and the key of a home."""

import os
import signal
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from jobs import clock
from jobs.security import encryption
from jobs.settings import Settings
from ops.cli import check
from ops.embedded import defaults, secret_key
from ops.embedded.ballast import Ballast
from ops.embedded.errors import EmbeddedError
from ops.embedded.server import Server
from ops.embedded.servers import EmbeddedServers
from ops.processes import log_rotation
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


@pytest.mark.heavy
def test_a_server_that_ends_again_and_again_starts_at_longer_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    servers, now_s, starts = EmbeddedServers(tmp_path, postgres=False), 0.0, list[float]()

    def start() -> None:
        starts.append(now_s)
        servers.redis.process = Started(["sleep", "600"])

    def end() -> None:
        assert servers.redis.process
        servers.redis.process.kill()
        servers.redis.process.wait()

    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    monkeypatch.setattr(servers.redis, "start", start)
    start()
    for quarter in range(80):
        now_s = quarter / 4
        if servers.redis.alive():
            end()
        servers.poll()
    assert starts[1:] == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5]
    assert "the embedded redis has ended with SIGKILL; it starts again" in caplog.text
    now_s = 31.0
    servers.poll()
    now_s = 36.0
    servers.poll()
    end()
    servers.poll()
    assert starts[-1] == 36.0, "it had lived"
    end()


def test_a_log_that_cant_be_bounded_ends_no_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    servers, started, now_s = EmbeddedServers(tmp_path), list[str](), 0.0
    for server in (servers.postgres, servers.redis):
        monkeypatch.setattr(server, "start", partial(started.append, server.name))
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)

    def bound(log: Path) -> None:
        if log == servers.postgres.log:
            raise OSError("Input/output error")

    monkeypatch.setattr(log_rotation, "bound", bound)
    warning = "the embedded postgres can't be looked after: Input/output error"
    servers.poll()
    servers.poll()
    assert started == ["postgres", "redis"]
    assert caplog.text.count(warning) == 1
    now_s = 10.0
    servers.poll()
    assert caplog.text.count(warning) == 2


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
    try:
        server.stop()
        assert f"redis (pid {process.pid}) doesn't end" in caplog.text
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def test_whoever_makes_it_at_the_same_time_reads_the_same_key(tmp_path: Path) -> None:
    home = tmp_path / "home"
    together = threading.Barrier(8)

    def use(_: int) -> str:
        together.wait()
        secret_key.ensure(home)
        return secret_key.read(home)

    with ThreadPoolExecutor(8) as pool:
        [key] = set(pool.map(use, range(8)))
    secret_key.ensure(home)
    assert secret_key.read(home) == key
    assert len(key) >= 32
    assert [path.name for path in home.iterdir()] == ["secret.key"]
    assert stat.S_IMODE((home / "secret.key").stat().st_mode) == 0o600


def test_keys_belong_to_the_embedded_database_alone_one_a_line_and_are_shown_nowhere(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    embedded = Settings(home=home)
    assert defaults.fill_in(embedded).secret_key == ""
    assert not home.exists(), "reading makes none"
    secret_key.ensure(home)
    assert defaults.fill_in(embedded).secret_key == secret_key.read(home)
    assert defaults.fill_in(embedded.evolve(database_url="postgresql://h/d")).secret_key == ""
    assert defaults.fill_in(embedded.evolve(secret_key="k" * 32)).secret_key == "k" * 32
    settings = Settings(secret_key="k" * 32)
    assert "kkkk" not in repr(settings)
    assert "kkkk" not in str(list(check.setting_values(settings)))
    path = tmp_path / "secret.key"
    path.write_text(f"{'n' * 32}\n{'o' * 32}\n")
    filled = defaults.fill_in(Settings(home=tmp_path)).secret_key
    assert encryption.keys(filled) == ("n" * 32, "o" * 32)
    path.write_text(f"{'n' * 32}\nshort\n")
    with pytest.raises(EmbeddedError, match=r"secret\.key has a key of fewer than 32 characters"):
        secret_key.read(tmp_path)
