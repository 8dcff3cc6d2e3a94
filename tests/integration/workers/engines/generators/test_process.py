"""Engine `transformers`: its process is forked by a server that has imported torch, and what ends
it costs the process alone."""

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
from tests.support.generation.generating import new_sequence, prepared, resumed, run
from tests.support.wait import PATIENCE_S, eventually, gone
from workers.engines.generator import GeneratorDied
from workers.engines.transformers.engine import TransformersGenerator
from workers.engines.transformers.process import IMPORTED, ChildProcess

ROOT = Path(__file__).parents[5]


@pytest.fixture
def own(tiny_folder: Path) -> Iterator[TransformersGenerator]:
    """Generator that the test may kill."""
    with closing(load_tiny(tiny_folder)) as generator:
        yield generator


def test_a_killed_process_is_started_again_and_sequences_go_on(own: TransformersGenerator) -> None:
    one = new_sequence(prepared(own, {"prompt": "the cat"}), seed=3)
    [whole] = run(own, [one])
    own.add(resumed(one, []))
    begun = [token for _ in range(3) for e in own.step(64).emitted for token in e.tokens]
    os.kill(own.pid, signal.SIGKILL)
    with pytest.raises(GeneratorDied, match="-9") as died:
        own.step(64)
    assert died.value.outside
    own.restart()
    [rest] = run(own, [resumed(one, begun)])
    assert begun + rest.tokens == whole.tokens


def test_a_process_that_does_not_answer_is_killed(tiny_folder: Path) -> None:
    with closing(load_tiny(tiny_folder, max_step_s=0.2)) as own:
        os.kill(own.pid, signal.SIGSTOP)
        own.add(new_sequence(prepared(own, "a")))
        with pytest.raises(GeneratorDied, match=r"0\.2 s") as died:
            own.step(64)
        assert not died.value.outside
        assert gone(own.pid)


def test_an_exception_in_the_process_is_its_end(own: TransformersGenerator) -> None:
    own.add(new_sequence(prepared(own, "a")))
    with pytest.raises(GeneratorDied, match="TypeError"):
        own.step("many")  # type: ignore[arg-type]
    assert gone(own.pid)


def test_a_process_ends_with_its_parent_which_loads_no_torch(tiny_folder: Path) -> None:
    code = (
        "import sys; from workers.engines.transformers.engine import TransformersGenerator;"
        f"g = TransformersGenerator(**{tiny_llama.options(tiny_folder)!r});"
        "g.prepare([{'prompt': 'a'}]);"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules);"
        "print(g.pid, flush=True); sys.stdin.read()"
    )
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        assert not gone(child)
        parent.kill()
    eventually(lambda: gone(child))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"blocks": 1}, "too few"),
        ({"dtype": "float33"}, "float33"),
        ({"device": "nowhere"}, "nowhere"),
    ],
)
def test_a_load_that_fails_says_why(
    tiny_folder: Path, options: dict[str, object], said: str
) -> None:
    with pytest.raises((ValueError, RuntimeError), match=said):
        load_tiny(tiny_folder, **options)


def test_a_cache_that_does_not_fit_is_refused_before_anything_is_loaded(tiny_folder: Path) -> None:
    children = set(psutil.Process().children())
    with pytest.raises(ValueError, match=r"KV cache [\d,]+ MiB.*are free: lower options\.cache_mb"):
        load_tiny(tiny_folder, blocks=1 << 30)
    assert set(psutil.Process().children()) <= children


def test_quantized_weights_take_a_third_and_give_text_that_goes_on(tiny_folder: Path) -> None:
    with (
        closing(load_tiny(tiny_folder, blocks=64)) as full,
        closing(load_tiny(tiny_folder, blocks=64, quantization="int8")) as small,
    ):
        cache_mb = 64 * 4 * 256 / 2**20
        weights = full.memory_mb() - cache_mb
        assert small.memory_mb() - cache_mb < 0.4 * weights
        prompts = [prepared(small, text) for text in tiny_llama.TEXTS[:4]]
        together = run(small, [new_sequence(prompt, seed=3) for prompt in prompts])
        assert all(one.finish and one.tokens for one in together)
        one = new_sequence(prompts[0], seed=3)
        [rest] = run(small, [resumed(one, together[0].tokens[:5])])
        assert together[0].tokens[:5] + rest.tokens == together[0].tokens


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


def test_all_is_imported_and_no_thread_runs_before_the_fork_which_sees_its_device(
    answerer: str,
) -> None:
    visible = "os.environ.get('CUDA_VISIBLE_DEVICES')"
    with started(answerer, device="GPU-1") as mine, started(answerer) as anys:
        assert set(IMPORTED) <= mine.ask("LOADED", PATIENCE_S)
        assert tasks(server_of(mine.pid)) == 1
        assert server_of(mine.pid) == server_of(anys.pid)
        assert mine.ask(visible, PATIENCE_S) == "GPU-1"
        assert anys.ask(visible, PATIENCE_S) == os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.mark.nightly
def test_no_import_of_the_server_asks_for_devices() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_DEVICES], cwd=ROOT, check=True)


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
    answerer: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    tmp_path: Path, owner: str,
) -> None:  # fmt: skip
    if owner == "none":
        monkeypatch.delenv(shared_fork_server.VARIABLE)
    else:
        nowhere = f"{os.getpid()}:{tmp_path / 'missing' / 'folder'}"
        monkeypatch.setenv(shared_fork_server.VARIABLE, nowhere)
    caplog.set_level(logging.WARNING)
    with started(answerer) as child:
        assert child.ask("os.getppid()", PATIENCE_S) == os.getpid()
    assert ("without the fork server" in caplog.text) == (owner == "faulty")
