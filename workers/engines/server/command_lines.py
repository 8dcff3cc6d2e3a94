"""Command lines of inference servers: pure functions of the options.

vllm          `vllm serve`, of its virtual environment
sglang        `python -m sglang.launch_server`, of its virtual environment
llama-server  llama.cpp's server, for files in GGUF

All are told to sample as OpenAI's API says where a request names no values: two of them would take
those of the model's folder, llama.cpp its own.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.models.engines.server_options import ServerOptions

_HOST = "127.0.0.1"
_PROGRAMS = {"vllm": "vllm", "sglang": "python3", "llama-server": "llama-server"}
_SGLANG_VERSION = "from importlib.metadata import version; print(version('sglang'))"
_NOT_PASSED = ("MILLRACE_", "PYTHONPATH", "PYTHONHOME", "CUDA_VISIBLE_DEVICES")
"""Beginnings of variables of the worker that a server doesn't get: secrets, and ours of Python."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Program with its arguments, and the variables that are set for it."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def command_line(options: ServerOptions, port: int, key: str) -> CommandLine:
    """Returns the command that starts the server. key: that requests to it have to bear."""
    if options.command:
        places = {"{port}": str(port), "{path}": options.path, "{model}": options.model}
        argv = [_filled(word, places) for word in options.command]
        return CommandLine(argv, {"SERVER_API_KEY": key})
    made = _SERVERS[options.server](options, port, key)
    return CommandLine([*made.argv, *options.args], made.environment)


def version_command(options: ServerOptions) -> list[str]:
    """Returns the command that prints the version; [] where there is none."""
    if not options.server:
        return options.version_command
    if options.server == "sglang":
        return [program(options), "-c", _SGLANG_VERSION]
    return [program(options), "--version"]


def program(options: ServerOptions) -> str:
    """Returns the path of the program: in its virtual environment, as it is named, or in PATH."""
    name = _PROGRAMS[options.server]
    given = options.program or name
    if os.path.isdir(given):
        return str(Path(given) / "bin" / name)
    return shutil.which(given) or given


def inherited_environment(
    options: ServerOptions, device: str, worker: Mapping[str, str]
) -> dict[str, str]:
    """Returns what the server has of the worker's environment: no secrets, and its devices.

    device: torch's name of the worker's device.
    """
    kept = {k: v for k, v in worker.items() if not k.startswith(_NOT_PASSED)}
    if options.server:
        folder = os.path.dirname(program(options))
        kept["PATH"] = os.pathsep.join(filter(None, [folder, worker.get("PATH", "")]))
    visible = visible_devices(options.devices, device, worker.get("CUDA_VISIBLE_DEVICES"))
    devices = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return kept | devices


def visible_devices(
    declared: Sequence[int | str], device: str, inherited: str | None
) -> str | None:
    """Returns CUDA_VISIBLE_DEVICES of the server; None: all.

    Indices are those of the devices that the worker sees (`inherited`). Raises ValueError for one
    that it doesn't.
    """
    ours = None if inherited is None else [name for name in inherited.split(",") if name]
    if not declared:
        if device.startswith("cpu"):
            return ""
        _, _, index = device.partition("cuda:")
        if not index:
            return inherited
        declared = [int(index)]
    names: list[str] = []
    for one in declared:
        if isinstance(one, int) and ours is not None:
            if one >= len(ours):
                raise ValueError(f"options.devices: there is no device {one} among {inherited!r}")
            names.append(ours[one])
        else:
            names.append(str(one))
    return ",".join(names)


def _filled(word: str, places: Mapping[str, str]) -> str:
    for place, value in places.items():
        word = word.replace(place, value)
    return word


def _flag(name: str, value: object) -> list[str]:
    """Returns a flag with its value; none where the value is empty or 0."""
    return [name, str(value)] if value else []


def _parallel(options: ServerOptions) -> list[str]:
    return _flag("--tensor-parallel-size", len(options.devices) if options.devices[1:] else 0)


def _vllm(options: ServerOptions, port: int, key: str) -> CommandLine:
    return CommandLine(
        [
            *(program(options), "serve", options.path),
            *("--host", _HOST, "--port", str(port)),
            *("--served-model-name", options.model),
            *("--generation-config", "vllm"),
            *("--scheduling-policy", "priority"),  # calls before items
            "--enable-prompt-tokens-details",  # cached tokens, for the bill
            *("--max-num-seqs", str(options.sequences)),
            *_flag("--max-model-len", options.context_tokens),
            *_flag("--gpu-memory-utilization", options.memory_share),
            *_parallel(options),
        ],
        {"VLLM_API_KEY": key, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"},
    )


def _sglang(options: ServerOptions, port: int, key: str) -> CommandLine:
    return CommandLine(
        [
            *(program(options), "-m", "sglang.launch_server", "--model-path", options.path),
            *("--host", _HOST, "--port", str(port)),
            *("--served-model-name", options.model, "--api-key", key),
            *("--sampling-defaults", "openai"),
            *("--enable-metrics", "--enable-cache-report"),
            *("--max-running-requests", str(options.sequences)),
            *_flag("--context-length", options.context_tokens),
            *_flag("--mem-fraction-static", options.memory_share),
            *_parallel(options),
        ],
        {"HF_HUB_OFFLINE": "1"},
    )


def _llama_server(options: ServerOptions, port: int, key: str) -> CommandLine:
    return CommandLine(
        [
            *(program(options), "--model", options.path, "--alias", options.model),
            *("--host", _HOST, "--port", str(port)),
            *("--metrics", "--jinja", "--no-webui"),
            *("--temp", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0"),
            *("--parallel", str(options.sequences)),
            # Its context is that of all sequences together.
            *_flag("--ctx-size", options.context_tokens * options.sequences),
            *_flag("--threads", options.threads),
        ],
        {"LLAMA_API_KEY": key},
    )


_SERVERS: Mapping[str, Callable[[ServerOptions, int, str], CommandLine]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llama-server": _llama_server,
}
