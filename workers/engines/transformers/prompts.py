"""Prompts as token ids, and why a request is refused before it reaches the model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from jobs.models.engines import huggingface_folder
from jobs.models.inputs.generation import GenerationRequest, Rendering, Sampling
from workers.engines.generator import Prompt, Tokenized, prompt_too_long, unknown_token
from workers.engines.transformers.chat_template import ChatTemplate, read_sources
from workers.engines.transformers.control_tokens import ControlTokens
from workers.engines.transformers.harmless import harmless, harmless_variables
from workers.engines.transformers.tool_formats import HERMES

_MOST_CHARACTERS_A_TOKEN = 64  # a longer text that isn't to be cut is refused untokenized
_USUAL = Rendering()
_SAID = {role: {"role": role, "content": "hi"} for role in ("system", "user", "assistant")}
_CALL = {"id": "call00001", "type": "function", "function": {"name": "f", "arguments": {"a": "b"}}}
_CALLS = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
_RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "f", "content": "hi"}
_TURNS = (
    [_SAID["user"]],
    [_SAID["system"], _SAID["user"], _SAID["assistant"], _SAID["user"]],
    [_SAID["user"], _CALLS, _RESULT],
    [_SAID["user"], _CALLS, _RESULT, _SAID["assistant"], _SAID["user"]],
)
_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
_RENDERINGS = _USUAL, Rendering(add_generation_prompt=False)
_PROBES: list[tuple[list[Any], list[Any], Rendering]] = list(
    product(_TURNS, ([], [_TOOL]), _RENDERINGS)
)


class Prompts:
    """Tokenizer and chat template of one folder, with the bounds of its model."""

    def __init__(
        self, folder: Path, vocabulary: int, context_tokens: int, tool_call_format: str = ""
    ) -> None:
        """tool_call_format: in which the model writes calls; "": as its chat template shows."""
        file = folder / huggingface_folder.TOKENIZER
        self._tokenizer = Tokenizer.from_file(str(file))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        sources = "\n".join(read_sources(folder).values())
        self._control = ControlTokens(self._tokenizer, file, sources)
        template, plain = ChatTemplate(folder, self._control.marked), ChatTemplate(folder)
        self._marks = self._is_marked(template, plain)
        self._template = template if self._marks else plain
        self._call_format = tool_call_format or plain.call_format
        self._vocabulary = vocabulary
        self._most = context_tokens - 1  # one is left for the output
        self._around = _special_around(self._tokenizer)

    def prompt(self, request: GenerationRequest) -> Prompt:
        """Tokenizes a request. Raises ValueError where the model can't serve it."""
        self._check_sampling(request.sampling, request.prompt_logprobs)
        text, tokens = self._tokens(request)
        kept = request.truncation.cut(tokens, self._most + 1, request.sampling.max_tokens)
        if truncated := len(tokens) - len(kept):
            text, tokens = str(self._tokenizer.decode(kept, skip_special_tokens=False)), kept
        if not tokens:
            raise ValueError("the prompt is empty")
        if not 0 <= min(tokens) <= max(tokens) < self._vocabulary:
            wrong = next(token for token in tokens if not 0 <= token < self._vocabulary)
            raise self._out_of_vocabulary("prompt", wrong)
        if len(tokens) > self._most:
            raise prompt_too_long(len(tokens), request, self._most + 1)
        rewritten = request.refers_to_tools and not request.constrained_by
        form = self._call_format if rewritten and self._call_format != HERMES else ""
        return Prompt(tokens, len(tokens), request, text, truncated=truncated, call_format=form)

    def tokenized(self, request: GenerationRequest) -> Tokenized:
        """Returns the tokens of a request. Raises ValueError where there can't be any."""
        _, tokens = self._tokens(request)
        texts = [self._tokenizer.id_to_token(token) or "" for token in tokens]
        return Tokenized(tokens, texts, self._most + 1)

    def text(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens. Raises ValueError for one that the model doesn't have."""
        for place, token in enumerate(tokens):
            if token >= self._vocabulary or self._tokenizer.id_to_token(token) is None:
                raise unknown_token(place, token, self._vocabulary)
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False))

    def _tokens(self, request: GenerationRequest) -> tuple[str, Sequence[int]]:
        prompt = request.prompt
        if prompt is None:
            return self._conversation(request)
        if not isinstance(prompt, str):
            valid = [token for token in prompt if 0 <= token < self._vocabulary]
            return str(self._tokenizer.decode(valid)), list(prompt)
        self._check_text(prompt, request)
        special = request.rendering.add_special_tokens is None
        return prompt, self._tokenizer.encode(prompt, add_special_tokens=special).ids

    def _conversation(self, request: GenerationRequest) -> tuple[str, Sequence[int]]:
        control, messages, rendering = self._control, request.messages or (), request.rendering
        tools = request.tool_use.tools if request.refers_to_tools else ()
        try:
            marked = self._template.render(messages, tools, rendering)
        except ValueError as error:  # which may repeat texts of the template
            raise ValueError(control.told(str(error))) from error
        text, written = control.unmarked(marked)
        self._check_text(text, request)
        ids: Sequence[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        if not self._marks:
            self._check_spelled(ids, messages, tools, rendering)
        elif control.among(ids) != written:
            ids = control.encode(marked)
        if rendering.add_special_tokens:
            before, behind = self._around
            ids = [*before, *ids, *behind]
        return text, ids

    def _check_spelled(
        self,
        ids: Sequence[int],
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        rendering: Rendering,
    ) -> None:
        """Refuses texts that are control tokens, or become some by the template or the tokenizer:
        there are others than in a conversation of the same shape.

        ids: tokens of the conversation.
        """
        said = json.dumps([messages, tools, rendering.variables], ensure_ascii=False)
        spelled, expected = self._control.first_in(said), []
        if not spelled:
            variables = harmless_variables(rendering.variables)
            shape = replace(rendering, variables=variables)
            text = _rendered(self._template, harmless(messages), harmless(tools), shape)
            expected = self._tokenizer.encode(text, add_special_tokens=False).ids
        if spelled or self._control.among(ids) != self._control.among(expected):
            which = f"{spelled!r}, a control token" if spelled else "parts of a control token"
            raise ValueError(
                f"messages spell {which}: leave it out, since the model's chat template puts its "
                "own together of pieces"
            )

    def _check_text(self, text: str, request: GenerationRequest) -> None:
        bounded = request.truncation.tokens is None  # else it is cut once it is tokenized
        if bounded and len(text) > _MOST_CHARACTERS_A_TOKEN * self._most:
            raise prompt_too_long(f"{len(text)} characters", request, self._most + 1)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError("the prompt holds a lone surrogate, not valid Unicode") from error

    def _is_marked(self, template: ChatTemplate, plain: ChatTemplate) -> bool:
        """Returns True for a template whose marks stand for all control tokens that it writes: it
        puts none together of pieces, and writes the same as without marks."""
        for probe in _PROBES:
            text, written = self._control.unmarked(_rendered(template, *probe))
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
            expected = _rendered(plain, *probe)
            if text != expected or self._control.among(ids) != written:
                return False
        return True

    def _check_sampling(self, sampling: Sampling, prompt_logprobs: int | None) -> None:
        known = self._vocabulary
        named = {
            "logit_bias": sampling.logit_bias,
            "stop_token_ids": sampling.stop_token_ids,
            "logprob_token_ids": sampling.logprob_token_ids,
        }
        for field, tokens in named.items():
            if wrong := [token for token in tokens if not 0 <= token < known]:
                raise self._out_of_vocabulary(field, wrong[0])
        likeliest = {"logprobs": sampling.logprobs, "prompt_logprobs": prompt_logprobs}
        if wanted := [name for name, count in likeliest.items() if (count or 0) > known]:
            raise ValueError(f"{wanted[0]} must be at most {known}")

    def _out_of_vocabulary(self, field: str, token: int) -> ValueError:
        return ValueError(
            f"{field}: token ids must be 0 to {self._vocabulary - 1}: {token} is out of "
            f"vocabulary, which has {self._vocabulary} tokens"
        )


def _special_around(tokenizer: Tokenizer) -> tuple[Sequence[int], Sequence[int]]:
    """Returns the special tokens that a tokenizer puts before and behind a text."""
    text = tokenizer.encode("a", add_special_tokens=False).ids
    whole: Sequence[int] = tokenizer.encode("a").ids
    starts = range(len(whole) - len(text) + 1)
    at = next((n for n in starts if whole[n : n + len(text)] == text), 0)
    return whole[:at], whole[at + len(text) :]


def _rendered(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    rendering: Rendering = _USUAL,
) -> str:
    try:
        return template.render(messages, tools, rendering)
    except Exception:  # as of a template without a system message
        return ""
