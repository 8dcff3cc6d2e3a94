"""Command lines of inference servers, against the flags that their documentation has."""

from typing import Any

import pytest

from jobs.models.engines.server_options import ServerOptions
from workers.engines.server.command_lines import (
    command_line,
    inherited_environment,
    version_command,
    visible_devices,
)
from workers.engines.server.memory import used_mb

PORT, KEY = 4711, "the-key"

#: A part of `vllm serve --help=all` (0.30), of `python -m sglang.launch_server --help` (0.5.23) and
#: of `llama-server --help`: True where a flag takes a value.
VLLM = {
    "--host": True, "--port": True, "--served-model-name": True, "--generation-config": True,
    "--scheduling-policy": True, "--enable-prompt-tokens-details": False, "--max-num-seqs": True,
    "--max-model-len": True, "--gpu-memory-utilization": True, "--tensor-parallel-size": True,
    "--pipeline-parallel-size": True, "--enable-lora": False, "--quantization": True,
    "--dtype": True, "--api-key": True, "--kv-cache-dtype": True, "--enforce-eager": False,
}  # fmt: skip
SGLANG = {
    "--model-path": True, "--host": True, "--port": True, "--served-model-name": True,
    "--api-key": True, "--sampling-defaults": True, "--enable-metrics": False,
    "--enable-cache-report": False, "--max-running-requests": True, "--context-length": True,
    "--mem-fraction-static": True, "--tensor-parallel-size": True, "--quantization": True,
    "--enable-priority-scheduling": False, "--dtype": True, "--enable-lora": False,
}  # fmt: skip
LLAMA_SERVER = {
    "--model": True, "--alias": True, "--host": True, "--port": True, "--metrics": False,
    "--jinja": False, "--no-webui": False, "--temp": True, "--top-k": True, "--top-p": True,
    "--min-p": True, "--parallel": True, "--ctx-size": True, "--threads": True, "--lora": True,
    "--gpu-layers": True, "--api-key": True, "--tensor-split": True,
}  # fmt: skip
DOCUMENTED = {"vllm": VLLM, "sglang": SGLANG, "llama-server": LLAMA_SERVER}


def options(server: str = "vllm", **more: Any) -> ServerOptions:
    given = {"server": server, "version": "1.0", "path": "/models/llama"} | more
    return ServerOptions.model_validate(given)


def argv(server: str, **more: Any) -> list[str]:
    return list(command_line(options(server, **more), PORT, KEY).argv)


FULL = {
    "sequences": 64,
    "context_tokens": 8192,
    "memory_share": 0.8,
    "devices": [0, 1],
    "threads": 2,
}


@pytest.mark.parametrize("server", DOCUMENTED)
@pytest.mark.parametrize("more", [{}, FULL], ids=["least", "full"])
def test_every_flag_is_documented_and_has_a_value_where_it_takes_one(
    server: str, more: dict[str, Any]
) -> None:
    words, known = argv(server, **more), DOCUMENTED[server]
    flags = [word for word in words if word.startswith("--")]
    assert set(flags) <= known.keys()
    assert len(set(flags)) == len(flags)
    for flag in flags:
        follows = words[words.index(flag) + 1 :]
        assert known[flag] == bool(follows and not follows[0].startswith("--")), flag


def test_vllm_serves_on_loopback_calls_before_items_and_one_device_needs_no_parallelism() -> None:
    words = argv("vllm", **FULL, args=["--quantization", "awq"])
    assert words[1:3] == ["serve", "/models/llama"]
    text = " ".join(words)
    for part in (
        "--host 127.0.0.1 --port 4711",
        "--served-model-name model",
        "--scheduling-policy priority",
        "--generation-config vllm",
        "--max-num-seqs 64",
        "--max-model-len 8192",
        "--gpu-memory-utilization 0.8",
        "--tensor-parallel-size 2",
    ):
        assert part in text
    assert text.endswith("--quantization awq")
    assert KEY not in text
    assert command_line(options(), PORT, KEY).environment["VLLM_API_KEY"] == KEY
    assert "--tensor-parallel-size" not in argv("vllm", devices=[3])
    assert "--tensor-parallel-size" not in argv("sglang")


def test_llama_server_divides_its_context_by_its_sequences() -> None:
    words = argv("llama-server", sequences=4, context_tokens=2048)
    assert words[words.index("--ctx-size") + 1] == "8192"
    assert "--ctx-size" not in argv("llama-server", sequences=4)


def test_a_command_or_program_of_ones_own_gets_what_it_needs(tmp_path: Any) -> None:
    words = ["run", "-p", "127.0.0.1:{port}:80", "{path}", "--name={model}"]
    own = ServerOptions(command=words, path="/models/llama")
    made = command_line(own, PORT, KEY)
    assert made.argv == ["run", "-p", "127.0.0.1:4711:80", "/models/llama", "--name=model"]
    assert made.environment == {"SERVER_API_KEY": KEY}
    assert version_command(own) == []
    assert argv("vllm", program=str(tmp_path))[0] == str(tmp_path / "bin" / "vllm")
    python = str(tmp_path / "bin" / "python3")
    assert argv("sglang", program=str(tmp_path))[:3] == [python, "-m", "sglang.launch_server"]
    assert version_command(options(program=str(tmp_path)))[1:] == ["--version"]


def test_a_server_gets_no_secrets_of_the_worker_and_none_of_its_packages() -> None:
    ours = {"MILLRACE_DATABASE_URL": "postgresql://x:secret@h/d", "PYTHONPATH": "/ours"}
    worker = {**ours, "PATH": "/bin", "HOME": "/root"}
    made = inherited_environment(options(program="/venv/bin/vllm"), "", worker)
    assert made == {"PATH": "/venv/bin:/bin", "HOME": "/root"}


@pytest.mark.parametrize(
    ("declared", "device", "inherited", "visible"),
    [
        ([], "", None, None),
        ([], "cuda", "2,3", "2,3"),
        ([], "cuda:1", None, "1"),
        ([], "cuda:1", "2,3", "3"),
        ([], "cpu", "2,3", ""),
        ([0, 1], "", None, "0,1"),
        ([0, 1], "cuda", "GPU-a,GPU-b,GPU-c", "GPU-a,GPU-b"),
        (["MIG-7"], "cuda", "GPU-a", "MIG-7"),
    ],
)
def test_a_server_sees_the_devices_that_are_declared_or_those_of_its_worker(
    declared: list[int | str], device: str, inherited: str | None, visible: str | None
) -> None:
    assert visible_devices(declared, device, inherited) == visible


def test_a_device_that_the_worker_does_not_see_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no device 2 among '4,5'"):
        visible_devices([2], "cuda", "4,5")


def test_memory_is_that_of_the_servers_own_processes() -> None:
    table = "11, 1000\n12, 500\n99, 7\n13, [N/A]\n"
    assert used_mb(table, {11, 12, 13}) == 1500.0
    assert used_mb("no devices were found", {11}) == 0.0
