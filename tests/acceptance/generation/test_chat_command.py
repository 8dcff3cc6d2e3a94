"""`millrace chat` against a running platform."""

from typing import Any

import pytest

from millrace.sync.chat import Chats
from ops.supervisor.platform import Platform
from tests.acceptance.generation.test_streams import CHATTER, SAID
from tests.support.command_line import run_millrace
from tests.support.extra_models import extra_models
from tests.support.models.entries import model
from tests.support.platforms import CHATTING

MODELS = CHATTER
PLATFORM = CHATTING


@pytest.fixture(scope="module")
def environ(platform: Platform, key: str) -> dict[str, str]:
    return {"MILLRACE_URL": platform.url, "MILLRACE_API_KEY": key}


def chat(environ: dict[str, Any], *arguments: str, typed: str = "", status: int = 0) -> str:
    return run_millrace("chat", *arguments, input=typed.encode(), status=status, **environ).output


def test_one_message_gets_one_answer(environ: dict[str, str]) -> None:
    assert chat(environ, "chatter", SAID).split() == SAID.split()


def test_each_line_is_a_message_of_one_conversation(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def stream(chats: Chats, model: str, messages: Any, **fields: Any) -> Any:
        asked.append([message["content"].strip() for message in messages])
        return right(chats, model, messages, **fields)

    right = Chats.stream
    monkeypatch.setattr(Chats, "stream", stream)
    chat(environ, "chatter", "--system", "Be kind.", typed="one\n\ntwo\n")
    assert asked == [["Be kind.", "one"], ["Be kind.", "one", "one", "two"]]


def test_an_unknown_model_is_reported(environ: dict[str, str]) -> None:
    assert "nobody" in chat(environ, "nobody", "x", status=1)


def test_it_waits_for_a_model_that_is_loaded_on_demand(
    platform: Platform, environ: dict[str, str]
) -> None:
    entry = model("sleeper", "echo_chat", on_demand=True)
    with extra_models(platform, entry):
        said = chat(environ, "sleeper", "wake up")
    assert "no worker is ready" in said
    assert said.strip().endswith("wake up")
