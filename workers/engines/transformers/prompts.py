"""Prompts as token ids, and why a request is refused before it reaches the model."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from jobs.models.engines import huggingface_folder
from jobs.models.inputs.generation import GenerationRequest, Sampling
from workers.engines.generator import Prompt
from workers.engines.transformers.chat_template import ChatTemplate

_MOST_CHARACTERS_A_TOKEN = 64  # a longer text is refused without tokenizing it


class Prompts:
    """Tokenizer and chat template of one folder, with the bounds of its model."""

    def __init__(self, folder: Path, vocabulary: int, context_tokens: int) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / huggingface_folder.TOKENIZER))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._template = ChatTemplate(folder)
        self._vocabulary = vocabulary
        self._most = context_tokens - 1  # one is left for the output

    def prompt(self, request: GenerationRequest) -> Prompt:
        """Tokenizes a request. Raises ValueError where the model can't serve it."""
        self._check_sampling(request.sampling)
        text, tokens = self._tokens(request)
        kept = request.truncation.cut(tokens, self._most + 1 - (request.sampling.max_tokens or 1))
        if len(kept) < len(tokens):
            text, tokens = str(self._tokenizer.decode(kept, skip_special_tokens=False)), kept
        if not tokens:
            raise ValueError("the prompt is empty")
        if not 0 <= min(tokens) <= max(tokens) < self._vocabulary:
            raise ValueError(f"prompt: token ids must be 0 to {self._vocabulary - 1}")
        if len(tokens) > self._most:
            raise self._too_long(f"{len(tokens)} tokens")
        return Prompt(tokens, len(tokens), request, text)

    def _tokens(self, request: GenerationRequest) -> tuple[str, Sequence[int]]:
        prompt = request.prompt
        if prompt is not None and not isinstance(prompt, str):
            valid = [token for token in prompt if 0 <= token < self._vocabulary]
            return str(self._tokenizer.decode(valid)), list(prompt)
        is_chat = prompt is None
        tools = request.tool_use.tools if request.refers_to_tools else ()
        text = prompt
        if text is None:
            text = self._template.render(request.messages or (), tools, request.rendering)
        if len(text) > _MOST_CHARACTERS_A_TOKEN * self._most:
            raise self._too_long(f"{len(text)} characters")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError("the prompt holds a lone surrogate, not valid Unicode") from error
        encoded = self._tokenizer.encode(text, add_special_tokens=not is_chat)
        return text, encoded.ids

    def _check_sampling(self, sampling: Sampling) -> None:
        known = self._vocabulary
        if wrong := [token for token in sampling.logit_bias if not 0 <= token < known]:
            raise ValueError(f"logit_bias: token ids must be 0 to {known - 1}, not {wrong[0]}")
        if any(token >= known for token in sampling.stop_token_ids):
            raise ValueError(f"stop_token_ids: token ids must be 0 to {known - 1}")
        if (sampling.logprobs or 0) > known:
            raise ValueError(f"logprobs must be at most {known}")

    def _too_long(self, count: str) -> ValueError:
        return ValueError(  # clients know "prompt is too long", as Anthropic says it
            f"the prompt is too long: it has {count}; the model takes {self._most} tokens, and one "
            "of output"
        )
