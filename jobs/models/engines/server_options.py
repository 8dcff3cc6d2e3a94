"""Options of the engine `server`: an inference server that the worker starts and watches."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from jobs.models.engines.custom_engines import FolderPath, Sha256
from jobs.models.engines.engine_spec import EngineOptions, EntryContext, Task
from jobs.models.engines.upstream_options import OpenAIOptions
from jobs.problems import fits

Server = Literal["", "vllm", "sglang", "llama-server"]
PORT = "{port}"
"""Placeholder in a command: the port that the server is to listen on."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SOUNDS_SECRET = re.compile(r"key|token|secret|password", re.IGNORECASE)
_SECRET = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/\S+")
_DEVICE = re.compile(r"(?:GPU|MIG)-[A-Za-z0-9/-]+")
_MARGIN_S = 30  # of limits.max_load_s, for what is not the server's start
_DEVICES = "a list of indices (0, 1) or UUIDs (GPU-…, MIG-…), each once"
_ENVIRONMENT = (
    "a table of variables and texts; one whose name sounds like a secret comes from "
    '"env:NAME" or "file:/path"'
)


def _program(path: str, info: ValidationInfo) -> str:
    """Joins a path to the folder of the file; a bare name is looked up in PATH by the worker."""
    if info.context is None or info.context.in_artifact or "/" not in path:
        return path
    return str(info.context.folder / path)


def _are_devices(devices: list[Any]) -> bool:
    known = all(
        device >= 0
        if type(device) is int
        else isinstance(device, str) and _DEVICE.fullmatch(device)
        for device in devices
    )
    return known and len(set(devices)) == len(devices)


def _is_environment(variables: Mapping[str, str]) -> bool:
    return all(
        _VARIABLE.fullmatch(name) and (not _SOUNDS_SECRET.search(name) or _SECRET.fullmatch(value))
        for name, value in variables.items()
    )


class ServerOptions(EngineOptions):
    """Options of the engine `server`."""

    requires: ClassVar = {
        "server": ("version", "path"),
        "sha256": ("path",),
        "version_command": ("command", "version"),
    }
    digests: ClassVar = {"sha256": ("path", "")}

    server: Server = ""
    #: of any other server, in place of `server`; {port} and {path} stand for themselves
    command: list[str] = Field([])
    #: folder of its virtual environment, or its program; "": found in PATH
    program: Annotated[str, AfterValidator(_program)] = ""
    version: str = ""  #: that the program must report; another one is refused
    version_command: list[str] = Field([])  #: prints the version of a `command`
    path: FolderPath = ""  #: folder or file of the model
    sha256: Sha256 = ""  #: of the file of the model, where it is one (GGUF)
    model: str = "model"  #: the model's name at the server
    args: list[str] = Field([])  #: further arguments
    environment: Annotated[dict[str, str], fits(_is_environment, _ENVIRONMENT)] = Field({})
    #: that the server sees; []: those of the worker. Several are used by tensor parallelism
    devices: Annotated[list[int | str], fits(_are_devices, _DEVICES)] = Field([])
    sequences: Annotated[int, Field(ge=1, le=1000)] = 32  #: most at a time
    context_tokens: Annotated[int, Field(ge=0, le=1 << 24)] = 0  #: of a sequence; 0: the model's
    #: share of a device's memory, as the server counts it; 0: its default
    memory_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    threads: Annotated[int, Field(ge=0, le=1024)] = 0  #: of llama-server on a CPU; 0: its default
    ready_s: Annotated[float, Field(ge=1, le=86_400)] = 300.0  #: until it is healthy
    timeout_s: Annotated[float, Field(ge=1, le=86_400)] = 600.0  #: of one request in all
    #: path that answers 200 while it is healthy
    health: Annotated[str, fits(re.compile(r"/[!-~]*").fullmatch, "a path")] = "/health"

    def conflicts(self, entry: EntryContext | None) -> Iterator[str]:
        """Implements `EngineOptions.conflicts`."""
        yield from self.one_of("server", "command")
        if self.command and not any(PORT in word for word in self.command):
            yield f"command must hold {PORT}, where the port goes"
        if self.command and (taken := {"program", "args", "threads"} & self.model_fields_set):
            yield f"{', '.join(sorted(taken))}: write it into command"
        longest_s = entry.limits.get("max_load_s", 600) if entry else None
        if isinstance(longest_s, int) and self.ready_s + _MARGIN_S > longest_s:
            yield (
                f"ready_s must be {_MARGIN_S} s less than limits.max_load_s ({longest_s} s), after "
                "which the worker is taken to hang"
            )
        yield from super().conflicts(entry)

    def file_problems(self, task: Task) -> Iterator[str]:
        """Implements `EngineOptions.file_problems`."""
        if self.path and not Path(self.path).exists():
            yield f"options.path: there is no file or folder {self.path}"
        elif self.sha256 and Path(self.path).is_dir():
            yield f"options.sha256 is that of a file, and {self.path} is a folder"
        if "/" in self.program and not Path(self.program).exists():
            yield f"options.program: there is no program or folder {self.program}"

    def upstream(self, port: int) -> OpenAIOptions:
        """Returns the options of the client, which speaks to the server on this port."""
        most = self.sequences
        return OpenAIOptions.model_validate(
            {
                "url": f"http://127.0.0.1:{port}/v1",
                "model": self.model,
                "stream": True,
                "continues": self.server == "vllm",
                "timeout_s": self.timeout_s,
                "concurrency": {"min": most, "start": most, "max": most},
            }
        )
