"""Engine `server` with a real server, llama.cpp's, which is killed, stopped and misconfigured."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs import clock
from jobs.models.model import Limits, Model
from tests.support import clients
from tests.support.generation.generating import Generated, finish, run, sequence
from tests.support.servers import llama_server
from tests.support.wait import eventually, gone
from workers.engines.generator import GeneratorDied, NewSequence
from workers.engines.server.generator import ServerGenerator
from workers.engines.server.memory import descendants

pytestmark = pytest.mark.timeout(600)  # the server is installed
ROOT = Path(__file__).parents[5]


@pytest.fixture(scope="module")
def options() -> dict[str, Any]:
    """Options of the model, whose server is installed."""
    try:
        program, path = llama_server.installed()
    except llama_server.NotInstalled as error:
        pytest.skip(f"llama.cpp's server can't be used: {error}")
    return {
        "server": "llama-server",
        "program": str(program),
        "version": llama_server.VERSION,
        "path": str(path),
        "sequences": 4,
        "context_tokens": 1024,
        "threads": 1,
    }


def load(options: dict[str, Any], **limits: int) -> ServerGenerator:
    model = Model("m", "1", "server", options=options, limits=Limits(**limits))
    return ServerGenerator(model, "cpu")


@pytest.fixture(scope="module")
def generator(options: dict[str, Any]) -> Iterator[ServerGenerator]:
    with closing(load(options)) as made:
        yield made


def chat(text: str, tokens: int = 16, **fields: Any) -> dict[str, Any]:
    return clients.chat(text, max_tokens=tokens, temperature=0, **fields)


def server_pid(generator: ServerGenerator) -> int:
    _, server, *_ = descendants(generator.pid)
    return server


def begin(generator: ServerGenerator, *ones: NewSequence) -> dict[str, Generated]:
    """Adds sequences, and steps until the first of them has a token."""
    found = {one.id: Generated() for one in ones}
    for one in ones:
        generator.add(one)

    def emits() -> bool:
        for emitted in generator.step(64).emitted:
            found[emitted.id].add(emitted)
        return any(one.tokens for one in found.values())

    eventually(emits)
    return found


def death(generator: ServerGenerator) -> str:
    """Steps until the generator has died; returns why."""

    def why() -> str:
        try:
            step = generator.step(64)
        except GeneratorDied as died:
            return f"{'from outside: ' if died.outside else ''}{died}"
        assert not [one for one in step.emitted if one.error]
        return ""

    return str(eventually(why))


def test_chats_are_answered_together_and_alone_alike(generator: ServerGenerator) -> None:
    texts = ["Say hello.", "What is two and two?", "Name a colour.", "Name a river."]
    together = run(generator, [sequence(generator, chat(text)) for text in texts])
    assert {one.finish for one in together} <= {"stop", "length"}
    assert all(one.text and one.usage and one.usage.input > 20 for one in together)
    [again] = run(generator, [sequence(generator, chat(texts[0]))])
    assert again.text == together[0].text
    assert generator.memory_mb() > 90, "less than the model has"


def test_a_request_without_values_is_sampled_as_openai_does(generator: ServerGenerator) -> None:
    body = clients.chat("Say a word.", max_tokens=8, seed=7)
    given = body | {"temperature": 1.0, "top_p": 1.0}
    plain, named = run(generator, [sequence(generator, one) for one in (body, given)])
    assert plain.text == named.text


def test_nobody_without_its_key_is_answered(options: dict[str, Any]) -> None:
    with closing(load(options)) as made:
        words = Path(f"/proc/{server_pid(made)}/cmdline").read_text().split("\0")
        url = f"http://127.0.0.1:{words[words.index('--port') + 1]}/v1/chat/completions"
        answer = httpx.post(url, json=chat("hello"), headers={"Authorization": "Bearer guess"})
        assert answer.status_code == 401


def test_a_killed_server_is_started_again_and_what_has_not_begun_goes_on(
    options: dict[str, Any],
) -> None:
    with closing(load(options | {"sequences": 1})) as made:
        one, two = (sequence(made, chat(text, 200)) for text in ("Tell a story.", "Say hello."))
        found = begin(made, one, two)  # one at a time: the second waits
        assert not found[two.id].tokens
        os.kill(server_pid(made), signal.SIGKILL)
        assert re.match("from outside: .*SIGKILL", death(made))
        assert made.room().closed_s > 0
        made.restart()
        assert made.room().closed_s == 0
        made.add(NewSequence(one.id, one.prompt, one.sampling, tuple(found[one.id].tokens)))
        made.add(two)
        finish(made, found)
        assert "ended in the middle" in str(found[one.id].error)
        assert found[two.id].finish
        assert found[two.id].text


def test_a_stopped_server_is_taken_to_hang(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(load(options, max_launch_s=60)) as made:
        pid = server_pid(made)
        begin(made, sequence(made, chat("Tell a story.", 500)))
        os.kill(pid, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(clock, "monotonic", lambda: time.monotonic() + 100)
            assert "was ended" in (why := death(made)) or "had no token" in why
            assert "from outside" not in why
        assert gone(pid)
        made.restart()
        [done] = run(made, [sequence(made, chat("Say hello."))])
        assert done.text


def test_a_restart_that_fails_can_be_tried_again(options: dict[str, Any], tmp_path: Path) -> None:
    weights = tmp_path / "weights.gguf"
    weights.symlink_to(options["path"])
    with closing(load(options | {"path": str(weights)})) as made:
        os.kill(server_pid(made), signal.SIGKILL)
        death(made)
        weights.unlink()
        with pytest.raises(GeneratorDied, match="doesn't start") as died:
            made.restart()
        assert not died.value.outside
        assert made.room().closed_s > 0
        weights.symlink_to(options["path"])
        made.restart()
        [done] = run(made, [sequence(made, chat("Say hello."))])
        assert done.text


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"version": "1.2.3"}, ValueError, "is not version 1.2.3, which options.version declares"),
        ({"sha256": "0" * 64}, Exception, "is not the file that was declared"),
        ({"program": "/no/server"}, ValueError, "there is no program /no/server"),
    ],
    ids=["version", "file", "program"],
)
def test_a_server_or_model_that_is_not_the_declared_one_is_refused(
    options: dict[str, Any], changed: dict[str, str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=re.escape(said)):
        load(options | changed)


def test_the_last_lines_of_a_server_that_ends_are_in_the_error(
    options: dict[str, Any], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF, but not really")
    with pytest.raises(GeneratorDied, match=rf"(?s)doesn't start: it ended .*{broken}"):
        load(options | {"path": str(broken)})


def test_a_server_that_does_not_get_ready_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    words = f"echo still thinking; touch {said}; sleep 600 & sleep 600; {{port}}"
    model = Model("m", "1", "server", options={"command": ["sh", "-c", words], "ready_s": 600.0})
    monkeypatch.setattr(clock, "monotonic", lambda: time.monotonic() + 1000 * said.exists())
    before = set(descendants(os.getpid()))
    with pytest.raises(RuntimeError, match=r"(?s)not ready within ready_s = 600 s.*still thinking"):
        ServerGenerator(model, "cpu")
    assert set(descendants(os.getpid())) <= before


WORKER = """
import json, sys, time
from jobs.models.model import Model
from workers.engines.server.generator import ServerGenerator

options = json.loads(sys.argv[1])
print(ServerGenerator(Model("m", "1", "server", options=options), "cpu").pid, flush=True)
time.sleep(600)
"""


def test_a_server_ends_with_its_worker_however_that_ends(options: dict[str, Any]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, json.dumps(options)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout
        pids = list(descendants(int(worker.stdout.readline())))
        worker.kill()
    assert len(pids) > 1
    eventually(lambda: all(map(gone, pids)))


def test_a_server_ends_with_its_guardian(options: dict[str, Any]) -> None:
    with closing(load(options)) as made:
        pid = server_pid(made)
        os.kill(made.pid, signal.SIGKILL)
        eventually(lambda: gone(pid))
        death(made)
