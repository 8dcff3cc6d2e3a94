"""Fields of OpenAI's chat completions, completions, responses and embeddings.

https://platform.openai.com/docs/api-reference
"""

from jobs.models.inputs.request_fields.row import Row, label, of_call, of_input, refused

_ALL = "chat completions responses messages embeddings tokenize detokenize"
_GENERATING = "chat completions responses messages"
_OPENAI = "chat completions responses"
_BOTH = "chat completions"
_RETURNING = "responses embeddings"
_SUMMARIES = ("auto", "concise", "detailed")

_CALL = (
    of_call("model", _ALL, "text", "name@version; or a name: its newest version that is ready"),
    of_call("stream", _GENERATING, "true or false", "events while the answer is generated", False),
    of_call("stream_options", _OPENAI, "object", "goes with `stream`"),
    of_call(
        "stream_options.include_usage", _BOTH, "true or false", "a last chunk with the usage", False
    ),
    refused("stream_options.include_obfuscation", _OPENAI, "padding of the chunks", False),
    of_call("timeout_ms", _ALL, "whole number", "deadline of the whole answer"),
    of_call("first_token_ms", _GENERATING, "whole number", "deadline of a stream's first token"),
    of_call("idle_ms", _GENERATING, "whole number", "longest silence of a stream after it"),
)
_SAMPLING = (
    of_input("temperature", _GENERATING, "number", "0 to 2; 0: the likeliest token each time", 1.0),
    of_input("top_p", _GENERATING, "number", "least sum of probabilities to choose from", 1.0),
    of_input("presence_penalty", _OPENAI, "number", "-2 to 2", 0.0),
    of_input("frequency_penalty", _OPENAI, "number", "-2 to 2", 0.0),
    of_input("logit_bias", _OPENAI, "object", "-100 to 100 by token id", {}),
    of_input("seed", _OPENAI, "whole number", "the same seed gives the same text"),
    of_input("stop", _OPENAI, "any", "a text or up to 16 that end the text", []),
    of_input("n", _BOTH, "whole number", "choices of each prompt, up to 128", 1),
    of_input("max_tokens", _BOTH, "whole number", "most tokens of a choice"),
)
_CHAT = (
    of_input(
        "messages", "chat tokenize", "list", "the conversation; in batched chats and inputs several"
    ),
    of_input("max_completion_tokens", "chat", "whole number", "the same as `max_tokens`"),
    of_input("logprobs", "chat", "true or false", "log probabilities of the tokens", False),
    of_input("top_logprobs", "chat", "whole number", "likeliest tokens beside each, up to 20"),
    of_input("tools", "chat tokenize", "list", "functions that the model may call", []),
    refused("tools[].type", "chat responses tokenize", "tools of the provider", "function"),
    of_input("tools[].function", "chat tokenize", "object", "the function"),
    of_input("tools[].function.name", "chat tokenize", "text", "its name"),
    of_input("tools[].function.description", "chat tokenize", "text", "for the chat template"),
    of_input(
        "tools[].function.parameters", "chat tokenize", "object", "JSON schema of its arguments"
    ),
    of_input(
        "tools[].function.strict", "chat tokenize", "true or false", "arguments are valid by it"
    ),
    of_input("tool_choice", "chat", "any", "`auto`, `none`, `required`, or a function", "auto"),
    of_input("tool_choice.type", "chat responses", "text", "`function`"),
    of_input("tool_choice.function", "chat", "object", "the function"),
    of_input("tool_choice.function.name", "chat", "text", "its name"),
    of_input("parallel_tool_calls", "chat", "true or false", "false: one call at most", True),
    refused("modalities", _BOTH, "other outputs than texts", ["text"]),
    refused("audio", "chat", "the voice of an answer that is spoken"),
    refused("functions", _BOTH, "tools, as they were named before", []),
    refused("function_call", _BOTH, "`tool_choice`, as it was named before", "none"),
    of_input("reasoning_effort", "chat tokenize", "text", "for a chat template that reads it"),
    of_input("thinking", "chat", "object", "for a chat template that reads `enable_thinking`"),
    of_input("thinking.type", "chat", "text", "`enabled` or `disabled`"),
    refused("reasoning_effort", "completions", "reasoning before the answer", "none"),
    refused(
        "verbosity", _BOTH, "a wish for the length: no model is told it", "medium", "low", "high"
    ),
    refused("web_search_options", "chat", "searches of the provider"),
    refused("moderation", "chat responses", "a check of input and output by another model"),
    label("prediction", _BOTH, "any", "text that may come, as a hint"),
)
_COMPLETIONS = (
    of_input("prompt", "completions", "any", "a text or its token ids, or a list of either"),
    of_input("echo", "completions", "true or false", "the prompt comes before the text", False),
    of_input(
        "echo", "chat", "true or false", "the message that is gone on with comes first", False
    ),
    of_input("logprobs", "completions", "whole number", "likeliest tokens beside each, up to 20"),
    of_input("best_of", "completions", "whole number", "must be equal to `n`", 1),
    refused("best_of", "chat", "choices that are ranked", 1),
    refused("suffix", _BOTH, "a text between two others", ""),
    refused("tools", "completions", "functions that the model may call", []),
    refused("tool_choice", "completions", "which of them", "none"),
    refused("parallel_tool_calls", "completions", "how many of them", True),
)
_FORMAT = (
    of_input("response_format", _BOTH, "object", "form of the text", {"type": "text"}),
    of_input("response_format.type", _BOTH, "text", "`text`, `json_object` or `json_schema`"),
    of_input("response_format.json_schema", _BOTH, "object", "with the schema"),
    of_input("response_format.json_schema.name", _BOTH, "text", "name of the schema"),
    of_input("response_format.json_schema.schema", _BOTH, "object", "the text is valid by it"),
    label("response_format.json_schema.description", _BOTH, "any", "for a reader"),
    of_input(
        "response_format.json_schema.strict",
        _BOTH,
        "true or false",
        "true: keywords that can't be enforced are refused",
        False,
    ),
)
_LABELS = (
    label("user", _BOTH, "any", "for routes that keep users at a version, if it is a text"),
    label("user", _RETURNING, "text", "for routes that keep users at a version"),
    label("safety_identifier", _BOTH, "any", "the same; goes before `user`"),
    label("safety_identifier", _RETURNING, "text", "the same; goes before `user`"),
    label("metadata", _BOTH, "any", "texts of the client"),
    label("store", _BOTH, "any", "chats are not stored"),
    label("service_tier", _BOTH, "any", "classes of price elsewhere"),
    label("prompt_cache_key", _BOTH, "any", "the prefix cache finds what it has without it"),
    label("prompt_cache_key", "responses", "text", "the same"),
    label("prompt_cache_retention", _BOTH, "any", "the prefix cache keeps what it has room for"),
    label("prompt_cache_retention", "responses", "text", "the same"),
    label("prompt_cache_options", _BOTH, "any", "the prefix cache needs none"),
    label("prompt_cache_options", "responses", "object", "the same"),
    label("prompt_cache_options.mode", _BOTH, "any", "breakpoints of the cache"),
    label("prompt_cache_options.mode", "responses", "text", "the same"),
    label("prompt_cache_options.ttl", _BOTH, "any", "time that a prefix is kept"),
    label("prompt_cache_options.ttl", "responses", "text", "the same"),
    refused("prompt_cache_options.prewarm", _OPENAI, "no answer, only its prefix", False),
    refused("prompt_cache_options.comparison_response_id", _OPENAI, "a diagnosis of the cache"),
)
_RESPONSES = (
    of_input("input", "responses", "any", "a text, or items"),
    of_input("instructions", "responses", "text", "a system message before the input"),
    of_input(
        "previous_response_id", "responses", "text", "goes on with a conversation; no batch does"
    ),
    of_input("conversation", "responses", "any", "goes on with it by its id; no batch does"),
    of_input("conversation.id", "responses", "text", "its id"),
    of_input("max_output_tokens", "responses", "whole number", "most tokens of the output"),
    of_input(
        "store",
        "responses",
        "true or false",
        "retrievable later; never in a batch",
        True,
    ),
    of_input("background", "responses", "true or false", "a job runs it; not in a batch", False),
    of_input("metadata", "responses", "object", "up to 16 texts, shown with it"),
    of_input("include", "responses", "list", "`message.output_text.logprobs`", []),
    of_input("top_logprobs", "responses", "whole number", "likeliest tokens beside each", 0),
    of_input("text", "responses", "object", "form of the text", {}),
    of_input("text.format", "responses", "object", "of the structure", {"type": "text"}),
    of_input("text.format.type", "responses", "text", "`text`, `json_object` or `json_schema`"),
    of_input("text.format.name", "responses", "text", "name of the schema"),
    of_input("text.format.schema", "responses", "object", "the text is valid by it"),
    label("text.format.description", "responses", "text", "for a reader"),
    of_input("text.format.strict", "responses", "true or false", "as of chat completions"),
    refused(
        "text.verbosity",
        "responses",
        "a wish for the length: no model is told it",
        "medium",
        "low",
        "high",
    ),
    of_input("tools", "responses", "list", "functions that the model may call", []),
    of_input("tools[].name", "responses", "text", "its name"),
    of_input("tools[].description", "responses", "text", "for the chat template"),
    of_input("tools[].parameters", "responses", "object", "JSON schema of its arguments"),
    of_input("tools[].strict", "responses", "true or false", "arguments are valid by it", False),
    refused("tools[].allowed_callers", "responses", "calls by programs", ["direct"], []),
    refused("tools[].defer_loading", "responses", "tools that a search finds", False),
    refused("tools[].async", "responses", "an answer before the tool's result", False),
    refused("tools[].output_schema", "responses", "the form of what a tool returns"),
    of_input("tool_choice", "responses", "any", "as of chat completions", "auto"),
    of_input("tool_choice.name", "responses", "text", "name of the function"),
    of_input("parallel_tool_calls", "responses", "true or false", "false: one call at most", True),
    label("max_tool_calls", "responses", "whole number", "of tools of the provider: there is none"),
    of_input("reasoning", "responses", "object", "of models that reason", {}),
    of_input("reasoning.effort", "responses", "text", "for a chat template that reads it"),
    refused(
        "reasoning.summary", "responses", "a summary of the reasoning: there is none", *_SUMMARIES
    ),
    refused(
        "reasoning.generate_summary", "responses", "the same, as it was named before", *_SUMMARIES
    ),
    refused("reasoning.context", "responses", "earlier reasoning", "auto"),
    refused("reasoning.mode", "responses", "another model", "standard"),
    refused(
        "truncation",
        "responses",
        "auto: shortens what is too long where it can; here it is refused",
        "disabled",
        "auto",
    ),
    refused("service_tier", "responses", "classes of price elsewhere", "auto", "default"),
    refused("context_management", "responses", "a conversation that is shortened", []),
    refused("access_programs", "responses", "OpenAI's programs", {}, {"cyber": "standard"}),
    refused(
        "background_options",
        "responses",
        "a price by the time of completion",
        {},
        {"completion_window": "soonest"},
    ),
    refused(
        "image",
        "responses",
        "how images are read",
        {},
        {"context_compression": "auto"},
        {"context_compression": "disabled"},
    ),
    refused("prompt", "responses", "a template that is stored elsewhere"),
)
_EMBEDDINGS = (
    of_input("input", "embeddings", "any", "a text, its token ids, or a list of either"),
    of_input("encoding_format", "embeddings", "text", "`float` or `base64`", "float"),
    of_input("dimensions", "embeddings", "whole number", "numbers that a vector is cut to"),
)
ROWS: tuple[Row, ...] = (
    *_CALL, *_SAMPLING, *_CHAT, *_COMPLETIONS, *_FORMAT, *_LABELS, *_RESPONSES, *_EMBEDDINGS
)  # fmt: skip
