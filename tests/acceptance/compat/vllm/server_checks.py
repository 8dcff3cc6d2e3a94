"""Checks of the server: its routes, models and tokens."""

from typing import Any

from tests.acceptance.compat.vllm.chat_checks import valid
from tests.acceptance.compat.vllm.check import (
    ASKED,
    CHAT,
    MODEL,
    Answer,
    Check,
    Request,
    chat,
    check,
    completion,
    get,
    good,
    ok,
    said,
)
from tests.acceptance.compat.vllm.tool_checks import TOOLS

BASIC = "serve/instrumentator/test_basic.py::"
MODELS = "openai/models/test_models.py::"
TOKENS = "serve/tokenize/test_tokenization.py::"
IDS = "openai/basic/test_return_token_ids.py::"
ROUTES = (
    check(BASIC + "test_show_version",
          (get("/version"), good(lambda a: isinstance(a["version"], str)))),
    check(BASIC + "test_check_health", (get("/health"), lambda a: a.status == 200)),
    check(BASIC + "test_request_wrong_content_type",
          (Request(CHAT, b"model=smollm2",
                   headers={"Content-Type": "application/x-www-form-urlencoded"}),
           lambda a: a.status >= 400)),
    check(MODELS + "test_check_models",
          (get("/v1/models"), good(lambda a: [(one["id"], one["root"]) for one in a["data"]
                                              if one["id"] == MODEL] == [(MODEL, MODEL)]))),
    check(MODELS + "test_retrieve_base_model",
          (get(f"/v1/models/{MODEL}"), good(lambda a: a["id"] == a["root"] == MODEL))),
    check(MODELS + "test_retrieve_unknown_model",
          (get("/v1/models/this-model-does-not-exist"),
           lambda a: a.status == 404 and "does not exist" in a.said)),
)  # fmt: skip
OF_BATCH = "openai/chat_completion/test_batched_chat_completions.py::test_batched_chat_completions"


def batched(n: int = 1, **fields: Any) -> Request:
    return Request(
        f"{CHAT}/batch", {"model": MODEL, "messages": [ASKED] * n, "max_tokens": 5, **fields}
    )


def tokens_of(answer: Answer) -> list[str]:
    """Names of the tokens and of the likeliest of an answer's first choice."""
    found = answer.choice["logprobs"]["content"]
    return [its["token"] for one in found for its in (one, *one["top_logprobs"])]


ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "string", "enum": ["yes", "no"]}},
    "required": ["answer"],
}
LIKELY: Any = {"logprobs": True, "top_logprobs": 1}
BATCHED = (
    check(OF_BATCH,
          (batched(2), good(lambda a: len(a.choices) == 2 and all(
              one["message"]["content"] for one in a.choices)
              and {one["index"] for one in a.choices} == {0, 1}))),
    check(f"{OF_BATCH}_with_json_schema",
          (batched(2, max_tokens=1000, seed=1, response_format={
              "type": "json_schema",
              "json_schema": {"name": "answer", "schema": ANSWER, "strict": True}}),
           good(lambda a: len(a.choices) == 2 and all(
               valid(one["message"]["content"], ANSWER) for one in a.choices)))),
    check(f"{OF_BATCH}_logprobs_not_token_id_placeholders",
          (batched(**LIKELY, return_token_ids=True),
           good(lambda a: not any(one.startswith("token_id:") for one in tokens_of(a))))),
    check(f"{OF_BATCH}_return_tokens_as_token_ids",
          (batched(**LIKELY, return_tokens_as_token_ids=True),
           good(lambda a: all(one.startswith("token_id:") for one in tokens_of(a))))),
    check(f"{OF_BATCH}_logprob_token_ids",
          (batched(logprobs=True, top_logprobs=5, logprob_token_ids=[7, 1, 2], temperature=0,
                   max_tokens=1, return_tokens_as_token_ids=True),
           good(lambda a: set(tokens_of(a)[1:]) == {
               "token_id:7", "token_id:1", "token_id:2", tokens_of(a)[0]}))),
)  # fmt: skip
TOKENIZED = (
    check(TOKENS + "test_tokenize_completions",
          *((Request("/tokenize", {"model": MODEL, "prompt": "a test", "add_special_tokens": add}),
             good(lambda a: a["count"] == len(a["tokens"]) > 0 and a["token_strs"] is None))
            for add in (False, True))),
    check(TOKENS + "test_tokenize_chat",
          (Request("/tokenize", {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}],
                                 "add_generation_prompt": True, "continue_final_message": False,
                                 "add_special_tokens": False}),
           good(lambda a: a["count"] == len(a["tokens"]) > 0))),
    check(TOKENS + "test_tokenize_chat_with_tools",
          (Request("/tokenize", {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}],
                                 "tools": TOOLS}),
           good(lambda a: a["count"] == len(a["tokens"]) > 0))),
    check(TOKENS + "test_tokenize_with_return_token_strs",
          (Request("/tokenize", {"model": MODEL, "prompt": "a test", "return_token_strs": True}),
           good(lambda a: len(a["token_strs"]) == a["count"]))),
    check(TOKENS + "test_detokenize",
          (Request("/tokenize", {"model": MODEL, "prompt": "a test",
                                 "add_special_tokens": False}), ok),
          (lambda found: Request("/detokenize", {"model": MODEL, "tokens": found[0]["tokens"]}),
           good(lambda a: a.body == {"prompt": "a test"}))),
    check(IDS + "test_basic_completion_with_emoji",
          (completion("I love coding 🚀", max_tokens=10, logprobs=1, return_token_ids=True),
           good(lambda a: a.choice["token_ids"] and a.choice["prompt_token_ids"])),
          (completion("I love coding 🚀", max_tokens=10, logprobs=1, return_token_ids=False),
           good(lambda a: not a.choice.get("token_ids")
                and not a.choice.get("prompt_token_ids")))),
    check(IDS + "test_chat_completion_with_tool_use",
          (chat(tools=TOOLS, max_tokens=10, logprobs=True, return_token_ids=True),
           good(lambda a: a.choice["token_ids"] and a["prompt_token_ids"])),
          (chat(tools=TOOLS, max_tokens=10, logprobs=True, return_token_ids=False),
           good(lambda a: not a.choice.get("token_ids") and not a.body.get("prompt_token_ids")))),
    check(IDS + "test_comparison_with_prompt_logprobs_and_logprobs",
          (completion("Hello, world!", max_tokens=10, echo=True, logprobs=1, prompt_logprobs=1,
                      return_token_ids=True, return_tokens_as_token_ids=True),
           good(lambda a: [int(one.removeprefix("token_id:"))
                           for one in a.choice["logprobs"]["tokens"]]
                == [*a.choice["prompt_token_ids"], *a.choice["token_ids"]]))),
    check(IDS + "test_chat_completion_with_emoji_and_token_ids",
          (said("I love cats 🐱", max_tokens=10, logprobs=True, return_token_ids=True),
           good(lambda a: a.choice["token_ids"] and a["prompt_token_ids"])),
          (said("I love cats 🐱", max_tokens=10, stream=True, return_token_ids=True),
           good(lambda a: a.body[0]["prompt_token_ids"]
                and not any("prompt_token_ids" in one for one in a.body[1:])))),
    check("openai/chat_completion/test_chat_completion.py::"
          "test_chat_completion_truncation_side_controls_prompt_truncation",
          (said("Summarize.", max_tokens=1, return_token_ids=True), ok),
          *((said("Summarize.", max_tokens=1, return_token_ids=True, truncate_prompt_tokens=4,
                  truncation_side=side), ok) for side in ("right", "left")),
          together=lambda found: (
              found[1]["prompt_token_ids"] == found[0]["prompt_token_ids"][:4]
              and found[2]["prompt_token_ids"] == found[0]["prompt_token_ids"][-4:])),
)  # fmt: skip
CHECKS: tuple[Check, ...] = (*ROUTES, *BATCHED, *TOKENIZED)
