"""Engine `transformers`: its process is forked by a server that has imported torch."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobs.processes import shared_fork_server
from tests.integration.workers.engines.generators.conftest import load_tiny
from tests.support import fork_servers
from tests.support.generation import tiny_llama
from tests.support.generation.generating import new_sequence, prepared, run
from tests.support.wait import PATIENCE_S
from workers.engines.transformers.process import IMPORTED, ChildProcess

ROOT = Path(__file__).parents[5]
ANSWERER = """
import os, sys
from workers.engines.transformers.child_life import live

LOADED = set(sys.modules)

def serve(pipe):
    while True:
        pipe.send(eval(pipe.recv()))

live(serve)
"""
#: Imports as the server does, where each question about devices is an error.
WITHOUT_DEVICES = f"""
import importlib, torch

def asked(*_, **__):
    raise SystemExit("an import asks for devices, which initializes CUDA in the server")

for name in ("is_available", "device_count", "init", "_lazy_init", "mem_get_info"):
    setattr(torch.cuda, name, asked)
for name in ("_cuda_getDeviceCount", "_cuda_init"):
    if hasattr(torch._C, name):
        setattr(torch._C, name, asked)
for module in {IMPORTED!r}:
    importlib.import_module(module)
assert not torch.cuda.is_initialized()
"""


@pytest.fixture
def answerer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Module of a process that answers expressions."""
    (tmp_path / "answerer.py").write_text(ANSWERER)
    monkeypatch.syspath_prepend(tmp_path)
    return "answerer"


@contextmanager
def started(module: str, **options: Any) -> Iterator[ChildProcess]:
    child = ChildProcess(1, module, within_s=PATIENCE_S, **options)
    try:
        yield child
    finally:
        child.kill()


def cpu_s(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


def server_of(pid: int) -> int:
    """The parent of a process, which is the server."""
    parent = psutil.Process(pid).parent()
    assert parent
    assert shared_fork_server.__name__ in parent.cmdline()
    return parent.pid


def tasks(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def test_a_start_costs_a_fraction_of_the_imports(tiny_folder: Path) -> None:
    with closing(load_tiny(tiny_folder)) as generator:
        assert cpu_s(generator.pid) < cpu_s(server_of(generator.pid)) / 4


def test_all_is_imported_and_no_thread_runs_before_the_fork(answerer: str) -> None:
    with started(answerer) as child:
        assert set(IMPORTED) <= child.ask("LOADED", PATIENCE_S)
        assert tasks(server_of(child.pid)) == 1


def test_no_import_of_the_server_asks_for_devices() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_DEVICES], cwd=ROOT, check=True)


def test_a_process_sees_the_device_that_is_its_own(answerer: str) -> None:
    visible = "os.environ.get('CUDA_VISIBLE_DEVICES')"
    with started(answerer, device="GPU-1") as mine, started(answerer) as anys:
        assert server_of(mine.pid) == server_of(anys.pid)
        assert mine.ask(visible, PATIENCE_S) == "GPU-1"
        assert anys.ask(visible, PATIENCE_S) == os.environ.get("CUDA_VISIBLE_DEVICES")


def test_a_model_gets_the_threads_of_its_options(tiny_folder: Path) -> None:
    running = dict[int, int]()
    for threads in (1, 2, 4):
        with closing(load_tiny(tiny_folder, threads=threads)) as generator:
            run(generator, [new_sequence(prepared(generator, tiny_llama.TEXTS[0]))])
            server_of(generator.pid)
            running[threads] = tasks(generator.pid)
    assert running[1] == 2  # the second one waits for the end of the parent
    # Each thread that computes has a pool of its own.
    assert running[2] > running[1]
    assert running[4] - running[1] == 3 * (running[2] - running[1])


def test_a_killed_server_costs_no_sequence_and_is_started_again(tiny_folder: Path) -> None:
    with fork_servers.owned(), closing(load_tiny(tiny_folder)) as generator:
        one = new_sequence(prepared(generator, "the cat"), seed=3)
        [whole] = run(generator, [one])
        engine, server = generator.pid, server_of(generator.pid)
        os.kill(server, signal.SIGKILL)
        assert run(generator, [one]) == [whole]
        assert generator.pid == engine
        generator.restart()
        assert server_of(generator.pid) != server
        assert run(generator, [one]) == [whole]


@pytest.mark.parametrize("owner", ["none", "faulty"])
def test_without_a_server_it_starts_from_scratch(
    answerer: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    owner: str,
) -> None:
    if owner == "none":
        monkeypatch.delenv(shared_fork_server.VARIABLE)
    else:
        nowhere = f"{os.getpid()}:{tmp_path / 'missing' / 'folder'}"
        monkeypatch.setenv(shared_fork_server.VARIABLE, nowhere)
    caplog.set_level(logging.WARNING)
    with started(answerer) as child:
        assert child.ask("os.getppid()", PATIENCE_S) == os.getpid()
    assert ("without the fork server" in caplog.text) == (owner == "faulty")
