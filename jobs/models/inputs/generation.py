"""Inputs of models that generate text: a prompt or a conversation, and how tokens are sampled.

An input is a body of OpenAI's `/v1/chat/completions` (`messages`) or `/v1/completions` (`prompt`),
without `model` and `stream`; an output is the `chat.completion` or `text_completion` object.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from jobs.models.inputs.conversation import check_last, has_several, read_messages
from jobs.models.inputs.fields import FieldError, Fields
from jobs.models.inputs.request_fields import values
from jobs.models.inputs.request_fields.table import check
from jobs.models.inputs.structured.constraint import Constraint, read_constraint
from jobs.models.inputs.structured.tools import ToolUse, read_tools

MOST_CHOICES = 128  # of all prompts together
MOST_LOGPROBS = 20
COMPLETION_TOKENS = 16  # of a completion that names no max_tokens, as OpenAI's
_SHOWN = 100  # characters of a client's text in an error
_WITHOUT_REASONING = ("none", "minimal")
EFFORTS = (*_WITHOUT_REASONING, "low", "medium", "high", "xhigh", "max")  #: of reasoning
T = TypeVar("T")
_SET_BY_US = frozenset(
    {"messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template"}
    | {"tokenize"}
)  # variables of a chat template, and arguments of its library
_LEAST_TOP_P = 1e-6  # stands for 0, which leaves the likeliest token alone


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters by which the tokens of one sequence are chosen; the defaults are OpenAI's."""

    max_tokens: int | None = None  #: most tokens to generate; None: as many as the context has left
    min_tokens: int = 0  #: tokens before the end token or a stop string may end the sequence
    temperature: float = 1.0  #: 0: the likeliest token each time
    top_p: float = 1.0  #: least sum of probabilities of the tokens to choose from
    top_k: int = 0  #: most tokens to choose from; 0: no bound
    min_p: float = 0.0  #: least probability, as a share of the likeliest token's
    seed: int | None = None  #: the same seed gives the same text; None: the host chooses one
    presence_penalty: float = 0.0  #: subtracted from logits of tokens that were generated
    frequency_penalty: float = 0.0  #: the same, times how often each was
    repetition_penalty: float = 1.0  #: divides positive logits of tokens of prompt and output
    logit_bias: Mapping[int, float] = field(default_factory=dict)  #: by token id, added to logits
    stop: tuple[str, ...] = ()  #: strings that end the sequence; not part of the text
    logprobs: int | None = None  #: likeliest tokens reported beside each chosen one; None: nothing
    logprob_token_ids: tuple[int, ...] = ()  #: tokens reported in place of the likeliest
    ignore_eos: bool = False  #: the model's end tokens don't end the sequence
    stop_token_ids: tuple[int, ...] = ()  #: tokens that end it; not part of the text
    include_stop_str_in_output: bool = False  #: what ended the sequence is part of the text
    bad_words: tuple[str, ...] = ()  #: texts that don't come, with a blank before them or without
    skip_special_tokens: bool = True  #: special tokens are not part of the text


@dataclass(frozen=True, slots=True)
class Rendering:
    """How a conversation becomes a prompt."""

    variables: Mapping[str, Any] = field(default_factory=dict)  #: of the chat template, as asked
    effort: str = ""  #: of reasoning, which some templates look at; "": as the template has it
    thinks: bool | None = None  #: it reasons; None: by the effort
    add_generation_prompt: bool = True  #: it ends with the beginning of the assistant's message
    continue_final_message: bool = False  #: it ends within the last message, which is gone on with
    #: those that the tokenizer puts around a text; None: around a prompt, not around a conversation
    add_special_tokens: bool | None = None

    @property
    def template_variables(self) -> Mapping[str, Any]:
        """Variables of the chat template; those of an effort have the names that vLLM gives them,
        and a template that doesn't look at one is as without."""
        said: dict[str, Any] = {"reasoning_effort": self.effort} if self.effort else {}
        if self.effort or self.thinks is not None:
            by_effort = self.effort not in _WITHOUT_REASONING
            said["enable_thinking"] = by_effort if self.thinks is None else self.thinks
        return {**said, **self.variables}


@dataclass(frozen=True, slots=True)
class Truncation:
    """Bound of a prompt, beyond which tokens are left out."""

    #: most; -1: of a prompt that the context doesn't hold, what max_tokens leaves; None: all
    tokens: int | None = None
    keeps_first: bool = False  #: of a long prompt the first tokens are kept, not the last

    def cut(self, prompt: Sequence[T], context_tokens: int, max_tokens: int | None) -> Sequence[T]:
        """Returns what is kept of a prompt. Raises FieldError where `max_tokens` leaves nothing."""
        most = self.tokens
        if most is None or (most < 0 and len(prompt) < context_tokens):
            return prompt
        if most < 0:
            most = context_tokens - (max_tokens or 1)
        if most < 1:
            raise FieldError(
                "max_tokens",
                f"must be below the context of {context_tokens} tokens, to leave some to the "
                f"prompt of {len(prompt)}, which truncate_prompt_tokens shortens",
            )
        return prompt[:most] if self.keeps_first else prompt[-most:]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One request: n sequences of one prompt."""

    messages: Sequence[Mapping[str, Any]] | None = None  #: conversation; None: `prompt` is given
    prompt: str | Sequence[int] | None = None  #: text, or token ids
    rendering: Rendering = field(default_factory=Rendering)
    truncation: Truncation = field(default_factory=Truncation)  #: of the prompt
    tool_use: ToolUse = field(default_factory=ToolUse)
    constraint: Constraint | None = None  #: form of the text, where no tool is called
    n: int = 1  #: sequences
    echo: bool = False  #: the prompt comes before the text, or the message that is gone on with
    cache_salt: str = ""  #: requests with another one share no cached beginning with it
    #: likeliest tokens reported beside each of the prompt, in a list of its own; None: no list
    prompt_logprobs: int | None = None
    return_token_ids: bool = False  #: the answer has the ids of the prompt's and the text's tokens
    tokens_as_ids: bool = False  #: log probabilities name tokens by their ids, not by their texts
    sampling: Sampling = field(default_factory=Sampling)

    @property
    def echoes_prompt(self) -> bool:
        """True where the text begins with the prompt's, whose tokens are reported."""
        return self.echo and self.messages is None

    @property
    def scored(self) -> int | None:
        """Likeliest tokens to be found beside each of the prompt; None: nothing is reported."""
        echoed = self.sampling.logprobs if self.echoes_prompt else None
        wanted = (count for count in (echoed, self.prompt_logprobs) if count is not None)
        return max(wanted, default=None)

    @property
    def scored_by(self) -> str:
        """Fields for which the prompt's tokens are scored; "": they aren't."""
        scores = self.echoes_prompt and self.sampling.logprobs is not None
        echoed = "echo with logprobs" if scores else ""
        return echoed if self.prompt_logprobs is None else "prompt_logprobs"

    @property
    def opens(self) -> bool:
        """True where something comes before the output: the prompt, or what is reported of it."""
        return self.echo or self.return_token_ids or self.prompt_logprobs is not None

    @property
    def constrained_by(self) -> str:
        """Field for which a grammar decides which tokens may come; "": any may."""
        if self.constraint and not self.tool_use.is_forced:
            return self.constraint.field
        return self.tool_use.constrained_by

    @property
    def refers_to_tools(self) -> bool:
        """True where the model is told of tools, and its text may hold calls."""
        return bool(self.tool_use.tools) and self.tool_use.choice != "none"


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one request, each counted once, whatever was computed again."""

    input: int = 0  #: tokens of the prompt, cached ones included
    cached: int = 0  #: of those, tokens whose keys and values were in the cache
    output: int = 0  #: generated tokens of all sequences
    truncated: int = 0  #: tokens that were cut away from the prompt; not billed


def split_prompts(value: Any) -> list[Any]:
    """Returns an input for each prompt: itself, unless it has several, or several conversations."""
    if not isinstance(value, dict):
        return [value]
    prompts = value.get("prompt")
    if isinstance(prompts, list) and prompts and not isinstance(prompts[0], int):
        return [{**value, "prompt": prompt} for prompt in prompts]
    if has_several(messages := value.get("messages")):
        return [{**value, "messages": one} for one in messages]
    return [value]


def parse_all(value: Any) -> list[GenerationRequest]:
    """Reads an input of one prompt or several, as `parse` does: a request for each."""
    first, *others = split_prompts(value)
    request = parse(first, "messages" if first is value else "messages[0]")
    requests = [request]
    for n, other in enumerate(others, start=1):
        requests.append(_alike(request, other, n))
    if len(requests) * request.n > MOST_CHOICES:
        field = "prompt" if request.messages is None else "messages"
        raise FieldError(field, f"may have at most {MOST_CHOICES} choices, of all its {field}")
    return requests


def _alike(request: GenerationRequest, value: Mapping[str, Any], n: int) -> GenerationRequest:
    """Returns the request for the n-th of several prompts, which have all else in common."""
    if request.messages is None:
        return replace(request, prompt=_prompt(value["prompt"], f"prompt[{n}]"))
    messages = read_messages(value["messages"], place := f"messages[{n}]")
    if request.rendering.continue_final_message:
        check_last(messages, place)
    return replace(request, messages=messages)


def parse(value: Any, place: str = "messages") -> GenerationRequest:
    """Reads an input of one prompt. Raises FieldError (a ValueError), which names the field and how
    to mend it, for what is out of range and for what would change the output and isn't supported.

    place: of its conversation.
    """
    if not isinstance(value, dict):
        raise FieldError("input", 'must be an object with "messages" or with "prompt"')
    if ("messages" in value) == ("prompt" in value):
        raise FieldError("input", 'must have either "messages" or "prompt"')
    chat, fields = "messages" in value, Fields(value)
    check("chat" if chat else "completions", value)
    tool_use, constraint = read_tools(fields) if chat else ToolUse(), read_constraint(fields)
    if constraint and constraint.kind != "json" and tool_use.callable:
        raise FieldError(constraint.field, 'needs "tool_choice": "none" beside tools')
    form = constraint.field if constraint else tool_use.constrained_by
    if form and fields.flag("ignore_eos"):
        raise FieldError("ignore_eos", f"can't be true beside {form}: its form ends")
    n, best = fields.whole("n", 1, MOST_CHOICES) or 1, fields.get("best_of")
    if best is not None and best != n:
        raise FieldError("best_of", "must be equal to n: other choices aren't ranked")
    messages = read_messages(value["messages"], place) if chat else None
    rendering = _rendering(fields, messages, place)
    echo = fields.flag("echo") and (rendering.continue_final_message or not chat)
    request = GenerationRequest(
        messages=messages,
        prompt=None if chat else _prompt(value["prompt"]),
        rendering=rendering,
        truncation=_truncation(fields),
        tool_use=tool_use,
        constraint=constraint,
        n=n,
        echo=echo,
        cache_salt=values.cache_salt(fields.get("cache_salt")),
        prompt_logprobs=fields.whole("prompt_logprobs", 0, MOST_LOGPROBS),
        return_token_ids=fields.flag("return_token_ids"),
        tokens_as_ids=fields.flag("return_tokens_as_token_ids"),
        sampling=_sampling(fields, chat),
    )
    if request.scored_by and n > 1:
        raise FieldError("n", f"must be 1 beside {request.scored_by}, which all choices share")
    return request


def refuse(value: Any) -> str | None:
    """Returns what is wrong with an input, or None, as `EngineSpec.input_problem` does."""
    try:
        parse_all(value)
    except FieldError as error:
        return f"doesn't take this input: {error}"
    return None


def _prompt(value: Any, place: str = "prompt") -> str | Sequence[int]:
    if isinstance(value, str) and value:
        return value
    is_list = isinstance(value, list) and value
    if is_list and all(type(token) is int and token >= 0 for token in value):
        return value  # type: ignore[no-any-return]
    raise FieldError(place, "must be a text or a list of token ids, and not be empty")


def _rendering(
    fields: Fields, messages: Sequence[Mapping[str, Any]] | None, place: str
) -> Rendering:
    usual = messages is None
    special = fields.flag("add_special_tokens", default=usual)
    chosen = None if special == usual else special
    if messages is None:
        return Rendering(add_special_tokens=chosen)
    continues = fields.flag("continue_final_message")
    generation = fields.flag("add_generation_prompt", default=not continues)
    if continues and generation:
        raise FieldError("continue_final_message", 'needs "add_generation_prompt": false')
    if continues:
        check_last(messages, place)
    variables = fields.get("chat_template_kwargs")
    if not isinstance(variables, dict | None):
        raise FieldError("chat_template_kwargs", "must be an object of the template's variables")
    for name in variables or ():
        if name in _SET_BY_US or name.endswith("_token"):
            raise FieldError(
                f"chat_template_kwargs.{name[:_SHOWN]}",
                "is set by the request itself: leave it out",
            )
    return Rendering(
        variables or {}, _effort(fields), _thinks(fields), generation, continues, chosen
    )


def _effort(fields: Fields) -> str:
    effort = fields.get("reasoning_effort")
    if effort not in (None, *EFFORTS):
        raise FieldError("reasoning_effort", f"must be one of {', '.join(EFFORTS)}")
    return str(effort or "")


def _thinks(fields: Fields) -> bool | None:
    thinking = fields.get("thinking")
    kind = thinking.get("type") if isinstance(thinking, dict) else thinking
    if kind not in (None, "enabled", "disabled"):
        raise FieldError("thinking.type", 'must be "enabled" or "disabled"')
    return None if kind is None else bool(kind == "enabled")


def _truncation(fields: Fields) -> Truncation:
    most, side = fields.whole("truncate_prompt_tokens", -1), fields.get("truncation_side")
    if most == 0:
        raise FieldError("truncate_prompt_tokens", "must be -1, or a whole number of at least 1")
    if side not in (None, "left", "right"):
        raise FieldError("truncation_side", 'must be "left" or "right"')
    return Truncation(most, side == "right" and most is not None)


def _sampling(fields: Fields, chat: bool) -> Sampling:
    most = _max_tokens(fields, chat)
    least = fields.whole("min_tokens", 0) or 0
    if most is not None and least > most:
        raise FieldError("min_tokens", f"must be at most the {most} of max_tokens")
    logprobs = _chat_logprobs(fields) if chat else fields.whole("logprobs", 0, MOST_LOGPROBS)
    reported = values.token_ids(fields, "logprob_token_ids")
    if reported and logprobs is None:
        raise FieldError("logprob_token_ids", f'needs "logprobs": {"true" if chat else 1}')
    return Sampling(
        max_tokens=most,
        min_tokens=least,
        temperature=fields.number("temperature", 1.0, 0, 2),
        top_p=max(fields.number("top_p", 1.0, 0, 1), _LEAST_TOP_P),
        top_k=max(fields.whole("top_k", -1) or 0, 0),
        min_p=fields.number("min_p", 0.0, 0, 1),
        seed=fields.whole("seed", -(2**63), 2**63 - 1),
        presence_penalty=fields.number("presence_penalty", 0.0, -2, 2),
        frequency_penalty=fields.number("frequency_penalty", 0.0, -2, 2),
        repetition_penalty=fields.number("repetition_penalty", 1.0, 0, 10, above=True),
        logit_bias=values.logit_bias(fields.get("logit_bias")),
        stop=values.stop(fields.get("stop")),
        logprobs=logprobs,
        logprob_token_ids=reported,
        ignore_eos=fields.flag("ignore_eos"),
        stop_token_ids=values.token_ids(fields, "stop_token_ids"),
        bad_words=values.bad_words(fields.get("bad_words")),
        include_stop_str_in_output=fields.flag("include_stop_str_in_output"),
        skip_special_tokens=fields.flag("skip_special_tokens", default=True),
    )


def _max_tokens(fields: Fields, chat: bool) -> int | None:
    if not chat:  # an echoed prompt may be all that is wanted
        given = fields.whole("max_tokens", 0 if fields.flag("echo") else 1)
        return COMPLETION_TOKENS if given is None else given
    most = fields.whole("max_completion_tokens", 1)
    older = fields.whole("max_tokens", 1)
    if most is not None and older is not None and most != older:
        raise FieldError("max_tokens", "must be left out beside max_completion_tokens")
    return most or older


def _chat_logprobs(fields: Fields) -> int | None:
    top, wanted = fields.whole("top_logprobs", 0, MOST_LOGPROBS), fields.flag("logprobs")
    if top is not None and not wanted:
        raise FieldError("top_logprobs", 'needs "logprobs": true')
    return (top or 0) if wanted else None
