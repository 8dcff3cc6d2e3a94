"""Checks of completions: tests/entrypoints/openai/completion."""

from typing import Any

from tests.acceptance.compat.vllm.chat_checks import (
    INVALID_GRAMMAR,
    INVALID_SCHEMA,
    finishes,
    has_no_usage,
    has_usage_last,
    has_usage_throughout,
)
from tests.acceptance.compat.vllm.check import (
    COMPLETIONS,
    MODEL,
    Answer,
    Check,
    Request,
    check,
    completion,
    good,
    ok,
    refused,
)

FILE = "openai/completion/test_completion.py::"
PROMPTS = "openai/completion/test_prompt_validation.py::"
BY_IDS = [3, 4, 5, 6, 7]
SHORT: Any = {"max_tokens": 5, "temperature": 0.0}
STREAMED: Any = {**SHORT, "stream": True}
NAME = "Hello, my name is"
LLM = "What is an LLM?"


def is_single(answer: Answer) -> bool:
    usage = answer["usage"]
    return (
        bool(answer["id"])
        and len(answer.choices) == 1
        and answer.choice["finish_reason"] == "length"
        and usage["completion_tokens"] == 5
        and usage["total_tokens"] == 5 + usage["prompt_tokens"]
        and usage["prompt_tokens_details"]["cached_tokens"] == 0
    )


def logprobs_of(answer: Answer) -> Any:
    return answer.choice["logprobs"]


def echoes(prompt: Any, most: int) -> Any:
    def holds(answer: Answer) -> bool:
        found = logprobs_of(answer)
        is_whole = isinstance(prompt, list) or answer.choice["text"].startswith(prompt)
        lengths = {len(found[key]) > 5 for key in ("text_offset", "token_logprobs",
                                                   "top_logprobs", "tokens")}  # fmt: skip
        counts = [len(one) for one in found["top_logprobs"][1:]]
        return (
            is_whole
            and lengths == {True}
            and found["token_logprobs"][0] is None
            and found["top_logprobs"][0] is None
            and all(max(most, 1) <= count <= most + 1 for count in counts)
        )

    return good(holds)


def differ(texts: list[str], finished: int, n: int) -> bool:
    return len(set(texts)) == n == finished


def texts_of(answer: Answer, n: int) -> list[str]:
    texts = [""] * n
    for chunk in answer.body:
        for one in chunk["choices"]:
            texts[one["index"]] += one["text"]
    return texts


MANY: Any = {"max_tokens": 50, "n": 3, "temperature": 1.0, "seed": 42}
OPTIONS = "stream_options"
CHECKS: tuple[Check, ...] = (
    check(FILE + "test_single_completion",
          (completion(NAME, **SHORT, cache_salt="once"), good(is_single)),
          (completion(BY_IDS, **SHORT),
           good(lambda a: len(a.choice["text"]) >= 1 and not a.choice.get("prompt_logprobs")))),
    check(FILE + "test_completion_truncation_side_controls_prompt_truncation",
          *((completion(list(range(8)), max_tokens=1, temperature=0.0, return_token_ids=True,
                        truncate_prompt_tokens=4, truncation_side=side),
             good(lambda a, kept=kept: a.choice["prompt_token_ids"] == kept))  # type: ignore[misc]
            for side, kept in (("right", [0, 1, 2, 3]), ("left", [4, 5, 6, 7])))),
    check(FILE + "test_no_logprobs",
          (completion(BY_IDS, **SHORT), good(lambda a: logprobs_of(a) is None))),
    check(FILE + "test_zero_logprobs",
          (completion(BY_IDS, **SHORT, logprobs=0),
           good(lambda a: logprobs_of(a)["token_logprobs"] is not None
                and len(logprobs_of(a)["top_logprobs"][0]) == 1))),
    check(FILE + "test_some_logprobs",
          (completion(BY_IDS, **SHORT, logprobs=5),
           good(lambda a: 5 <= len(logprobs_of(a)["top_logprobs"][0]) <= 6))),
    check(FILE + "test_too_many_completion_logprobs",
          (completion(BY_IDS, **SHORT, logprobs=21), refused()),
          (completion(BY_IDS, **STREAMED, logprobs=30), refused()),
          (completion(BY_IDS, **SHORT), ok)),
    check(FILE + "test_prompt_logprobs_completion",
          (completion(["A robot", NAME], prompt_logprobs=-1), refused()),
          *((completion(["A robot", NAME], prompt_logprobs=n),
             good(lambda a: all(one["prompt_logprobs"] for one in a.choices)))
            for n in (0, 1)),
          (completion(["A robot", NAME]),
           good(lambda a: not a.choice.get("prompt_logprobs")))),
    check(FILE + "test_completion_streaming",
          (completion(LLM, **SHORT), ok),
          (completion(LLM, **STREAMED),
           good(lambda a: finishes(a.body) == ["length"]
                and a.body[-1]["choices"][0]["finish_reason"] == "length"
                and a.body[-1]["choices"][0]["text"])),
          together=lambda found: found[0].choice["text"] == found[1].text),
    check(FILE + "test_parallel_no_streaming",
          (completion(LLM, **MANY, logprobs=0),
           good(lambda a: [one["index"] for one in a.choices] == [0, 1, 2] and differ(
               [one["text"] for one in a.choices],
               len([one for one in a.choices if one["finish_reason"]]), 3)))),
    check(FILE + "test_parallel_streaming",
          (completion(LLM, **MANY, stream=True),
           good(lambda a: differ(texts_of(a, 3), len(finishes(a.body)), 3)))),
    check(FILE + "test_completion_stream_options",
          *((completion(LLM, **STREAMED, stream_options=options), good(holds))
            for options, holds in (
                ({"include_usage": False, "continuous_usage_stats": False}, has_no_usage),
                ({"include_usage": False, "continuous_usage_stats": True}, has_no_usage),
                ({"include_usage": True, "continuous_usage_stats": False}, has_usage_last),
                ({"include_usage": True, "continuous_usage_stats": True}, has_usage_throughout),
                ({}, has_no_usage))),
          *((completion(LLM, **SHORT, stream_options=options), refused())
            for options in ({"include_usage": None}, {"include_usage": True},
                            {"continuous_usage_stats": None},
                            {"continuous_usage_stats": True}))),
    check(FILE + "test_batch_completions",
          *((completion(prompts, **SHORT),
             good(lambda a: len(a.choices) == 2 and a.choices[0]["text"] == a.choices[1]["text"]))
            for prompts in ([NAME] * 2, [BY_IDS] * 2)),
          *((completion(prompts, **STREAMED), good(lambda a: len(set(texts_of(a, 2))) == 1))
            for prompts in ([NAME] * 2, [BY_IDS] * 2)),
          *((completion(prompts, **SHORT, n=2, use_beam_search=True),
             good(lambda a: len(a.choices) == 4)) for prompts in ([NAME] * 2, [BY_IDS] * 2)),
          differs="its requests without beam search pass; `use_beam_search` is refused"),
    check(FILE + "test_echo_logprob_completion",
          *((completion(prompt, **SHORT, echo=True, logprobs=most), echoes(prompt, most))
            for most in (1, 0) for prompt in (NAME, BY_IDS))),
    *(check(f"{FILE}{name}", (completion("x", structured_outputs=form), refused()))
      for name, form in (("test_invalid_json_schema", {"json": INVALID_SCHEMA}),
                         ("test_invalid_regex", {"regex": "[.*"}),
                         ("test_invalid_grammar", {"grammar": INVALID_GRAMMAR}))),
    check(f"{PROMPTS}test_empty_prompt",
          (Request(COMPLETIONS, {"model": MODEL, "prompt": None, **SHORT, "prompt_embeds": []}),
           refused("prompt"))),
    check(f"{PROMPTS}test_out_of_vocab_token_ids",
          (completion([999999], **SHORT), refused("vocabulary"))),
)  # fmt: skip
