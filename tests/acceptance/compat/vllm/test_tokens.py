"""Tokens of texts and conversations, and texts of tokens, as clients of vLLM ask for them."""

from typing import Any
from zlib import crc32

import httpx
import pytest

from tests.support.cases import each
from tests.support.models.entries import model
from tests.support.platforms import CHATTING

MODELS = model("chatter", "echo_chat", target_ttft_ms=60000, context_tokens=64)
MODELS += model("afar", "openai", task="chat", url="http://127.0.0.1:9/v1", model="theirs")
PLATFORM = CHATTING
SAID = "one two three"
MESSAGES = [{"role": "user", "content": SAID}]
IDS = [crc32(word.encode()) % (1 << 31) for word in SAID.split()]


def test_a_text_and_a_conversation_have_the_tokens_that_the_worker_makes(
    http: httpx.Client,
) -> None:
    chat = {"add_generation_prompt": True, "continue_final_message": False, "tools": []}
    for asked, case in each([
        {"prompt": SAID}, {"messages": MESSAGES}, {"messages": MESSAGES, **chat},
        {"prompt": SAID, "add_special_tokens": False}, {"prompt": SAID, "messages": None},
    ]):  # fmt: skip
        with case:
            found = http.post("/tokenize", json={"model": "chatter", **asked}).json()
            expected = {"count": 3, "max_model_len": 64, "tokens": IDS, "token_strs": None}
            assert found == expected
    named = {"model": "chatter", "prompt": SAID, "return_token_strs": True}
    assert http.post("/tokenize", json=named).json()["token_strs"] == SAID.split()


def test_a_prompt_that_is_too_long_has_tokens_too(http: httpx.Client) -> None:
    for words in (65, 40_000):  # the second in a child process
        body = {"model": "chatter", "prompt": "word " * words}
        assert http.post("/tokenize", json=body).json()["count"] == words


def test_tokens_have_a_text(http: httpx.Client) -> None:
    body = {"model": "chatter@1", "tokens": [7, 8]}
    assert http.post("/detokenize", json=body).json() == {"prompt": "t7 t8"}


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": "chatter", **fields}


@pytest.mark.parametrize(
    ("path", "body", "said", "param"),
    [
        ("/tokenize", asked(), "send prompt or messages", "prompt"),
        ("/tokenize", asked(prompt=[1]), "prompt must be a text", "prompt"),
        ("/tokenize", asked(prompt="a", messages=MESSAGES), "either", "input"),
        ("/tokenize", asked(prompt="a", invented=1), "invented", "invented"),
        ("/tokenize", asked(messages=MESSAGES, chat_template="x"), "leave it out", "chat_template"),
        ("/tokenize", asked(prompt="a", return_token_strs=1), "true or false", "return_token_strs"),
        ("/tokenize", asked(prompt="a", stream=True), "isn't a field", "stream"),
        ("/tokenize", asked(messages=MESSAGES, model="echo"), "echo@1", "model"),
        ("/tokenize", asked(messages=MESSAGES, model="afar"), "afar@1 tells no tokens", "model"),
        ("/detokenize", asked(), "list of token ids", "tokens"),
        ("/detokenize", asked(tokens=[]), "not empty", "tokens"),
        ("/detokenize", asked(tokens=[1, -2]), "tokens[1] must be a whole", "tokens.1"),
        ("/detokenize", asked(tokens=[1, 2.5]), "tokens[1] must be a whole", "tokens.1"),
        ("/detokenize", asked(tokens=[True]), "tokens[0] must be a whole", "tokens.0"),
        ("/detokenize", asked(tokens=[1, 1 << 31]), "tokens[1] is 2147483648", "input"),
    ],
)
def test_what_has_no_tokens_is_refused_with_its_place(
    http: httpx.Client, path: str, body: Any, said: str, param: str
) -> None:
    response = http.post(path, json=body)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param)
    assert said in error["message"]
