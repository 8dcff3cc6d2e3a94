"""llama.cpp's server, as its package xllamacpp has it prebuilt, and the GGUF file of SmolLM2.

The package has the server's C++ code behind Python; a script of a few lines takes the arguments
that llama-server takes. Both lie below the user's cache folder.
"""

import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from jobs.models.engines.server_options import ServerOptions
from ops.bench.baselines.environments import interpreter
from ops.bench.harness.errors import BenchError
from ops.processes.ports import free_port
from tests.support.clients import chat
from tests.support.processes import spawned
from tests.support.wait import PATIENCE_S, eventually
from workers.engines.server.command_lines import command_line
from workers.engines.transformers.samples import smollm2

GGUF_SHA256 = smollm2.GGUF_SHA256
VERSION = "2026.10.11549"

_SCRIPT = """#!{python}
import argparse, os, signal, sys
import xllamacpp

parser = argparse.ArgumentParser()
parser.add_argument("--version", action="version", version="version: {version} (xllamacpp)")
for flag in ("--metrics", "--jinja", "--no-webui"):
    parser.add_argument(flag, action="store_true")
for flag in ("--parallel", "--ctx-size", "--threads", "--port", "--top-k"):
    parser.add_argument(flag, type=int)
for flag in ("--temp", "--top-p", "--min-p"):
    parser.add_argument(flag, type=float)
for flag in ("--model", "--alias", "--host"):
    parser.add_argument(flag)
given = parser.parse_args()
print("loading", given.model, flush=True)
params = xllamacpp.CommonParams()
params.model.path, params.model_alias = given.model, {{given.alias}}
params.hostnames, params.port = [given.host], given.port
params.api_keys = [os.environ["LLAMA_API_KEY"]]
params.n_parallel, params.n_ctx = given.parallel, given.ctx_size
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = given.threads
params.endpoint_metrics, params.ui, params.n_gpu_layers = given.metrics, False, 0
params.no_extra_bufts = True  # with AMX, repacked weights crash on some virtual machines
sampling = params.sampling
sampling.temp, sampling.top_k, sampling.top_p, sampling.min_p = (
    given.temp, given.top_k, given.top_p, given.min_p
)
server = xllamacpp.Server(params)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
while True:
    signal.pause()
"""


class NotInstalled(Exception):
    """Raised where the package or the model can't be had, or doesn't run on this processor."""


def installed() -> tuple[Path, Path]:
    """Returns the program and the file of weights, which are installed, and tried, the first time.

    Raises NotInstalled.
    """
    program, weights = _program(), _weights()
    tried = program.with_name("tried")
    if not tried.exists():
        _try(program, weights)
        tried.touch()
    return program, weights


def _program() -> Path:
    try:
        python = interpreter("xllamacpp", VERSION)
    except BenchError as error:
        raise NotInstalled(str(error)) from error
    script = python.with_name("llama-server")
    _write(script, _SCRIPT.format(python=python, version=VERSION).encode(), 0o755)
    return script


def _weights() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    file = Path(base).expanduser() / "millrace" / f"smollm2-{GGUF_SHA256[:16]}.gguf"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
            try:
                smollm2.fetch(Path(scratch)).rename(file)
            except RuntimeError as error:
                raise NotInstalled(str(error)) from error
    return file


def _try(program: Path, weights: Path) -> None:
    """Generates longer texts than most tests do, several at a time, as a test with calls does.

    Raises NotInstalled where the server ends meanwhile: builds of llama.cpp have crashed on some
    virtual machines whose processors lack what they announce.
    """
    port = free_port()
    files = {"program": str(program), "path": str(weights), "version": VERSION}
    sizes = {"sequences": 4, "context_tokens": 1024, "threads": 1}
    command = command_line(ServerOptions(server="llama-server", **files, **sizes), port, "none")
    environ = {**os.environ, **command.environment}
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def answers(text: str) -> bool:
        body = chat(text, max_tokens=150, temperature=0)
        headers = {"Authorization": "Bearer none"}
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        with suppress(httpx.TransportError):
            return httpx.post(url, json=body, headers=headers, timeout=PATIENCE_S).is_success
        return False

    with spawned(command.argv, env=environ, **quiet) as server:
        eventually(lambda: server.poll() is not None or answers("Say hello."))
        with ThreadPoolExecutor(4) as pool:
            whole = all(pool.map(answers, [f"Tell the story of {n} ships." for n in range(8)]))
        if (status := server.poll()) is not None or not whole:
            raise NotInstalled(f"it doesn't run on this processor: exit status {status}")


def _write(path: Path, content: bytes, mode: int) -> None:
    """Writes a file whole: another process may run it."""
    if path.exists() and path.read_bytes() == content:
        return
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.chmod(file.name, mode)
    os.replace(file.name, path)
