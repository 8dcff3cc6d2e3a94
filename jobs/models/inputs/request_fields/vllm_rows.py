"""Fields that vLLM adds to OpenAI's, and Millrace's constraints, which have the form of its older
ones.

https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
"""

from jobs.models.inputs.request_fields.row import Row, label, of_call, of_input, refused

_ALL = "chat completions responses"
_BOTH = "chat completions"

_SAMPLING = (
    of_input("top_k", f"{_ALL} messages", "whole number", "most tokens to choose from", 0, -1),
    of_input("min_p", _ALL, "number", "least probability, as a share of the likeliest's", 0.0),
    of_input("repetition_penalty", _ALL, "number", "over 0, up to 10", 1.0),
    of_input("min_tokens", _ALL, "whole number", "tokens before the text may end", 0),
    of_input("ignore_eos", _ALL, "true or false", "the end token doesn't end the text", False),
    of_input("stop_token_ids", _BOTH, "list", "up to 128 tokens that end the text", []),
    of_input(
        "include_stop_str_in_output", _ALL, "true or false", "the text has what ended it", False
    ),
    of_input("bad_words", _BOTH, "list", "up to 128 texts that don't come", []),
    refused("allowed_token_ids", _BOTH, "the only tokens that come"),
    refused("use_beam_search", _BOTH, "beam search", False),
    refused("length_penalty", _BOTH, "of beam search", 1.0),
    refused("early_stopping", _BOTH, "of beam search", False),
    refused("logits_processors", _BOTH, "code in the sampler", []),
    refused("repetition_detection", _BOTH, "an end where the text repeats itself"),
    refused("watermarking", _BOTH, "a mark in the text", False),
    refused("thinking_token_budget", _BOTH, "most tokens of reasoning", -1),
)
_CONSTRAINTS = (
    of_input("regex", _ALL, "text", "the whole text matches it"),
    of_input("choice", _ALL, "list", "the whole text is one of them"),
    of_input("grammar", _ALL, "text", "grammar of the text, as Lark has it"),
    of_input("guided_json", _ALL, "any", "the text is valid by this JSON schema"),
    of_input("guided_regex", _ALL, "text", "`regex`, as vLLM had it"),
    of_input("guided_choice", _ALL, "list", "`choice`, as vLLM had it"),
    of_input("guided_grammar", _ALL, "text", "`grammar`, as vLLM had it"),
    of_input("structured_outputs", _ALL, "object", "one of the following", {}),
    of_input("structured_outputs.json", _ALL, "any", "`guided_json`, as vLLM has it", False),
    of_input("structured_outputs.regex", _ALL, "text", "`regex`, as vLLM has it", False),
    of_input("structured_outputs.choice", _ALL, "list", "`choice`, as vLLM has it", False),
    of_input("structured_outputs.grammar", _ALL, "text", "`grammar`, as vLLM has it", False),
    of_input("structured_outputs.json_object", _ALL, "true or false", "a JSON object", False),
    refused("structured_outputs.structural_tag", _ALL, "a form of parts of the text", False),
    refused("structured_outputs.disable_any_whitespace", _ALL, "JSON without blanks", False),
    refused("structured_outputs.disable_additional_properties", _ALL, "closed objects", False),
    refused("structured_outputs.disable_fallback", _ALL, "one library for grammars", False),
    refused("structured_outputs.whitespace_pattern", _ALL, "blanks in JSON", False),
)
_PROMPT = (
    of_input(
        "add_generation_prompt",
        "chat tokenize",
        "true or false",
        "false: the prompt lacks the beginning of an answer",
        True,
    ),
    of_input(
        "continue_final_message",
        "chat tokenize",
        "true or false",
        "the answer goes on with the last message, the assistant's",
        False,
    ),
    refused("chat_template", "chat tokenize", "a template of the client"),
    of_input(
        "chat_template_kwargs", "chat tokenize", "object", "variables of the chat template", {}
    ),
    refused("documents", "chat", "texts for the template", []),
    of_input(
        "add_special_tokens",
        "chat",
        "true or false",
        "true: the tokenizer's special tokens besides the template's",
        False,
    ),
    of_input(
        "add_special_tokens",
        "completions",
        "true or false",
        "false: a text without the tokenizer's special tokens",
        True,
    ),
    refused("include_reasoning", "chat", "the reasoning, of which there is none", True, False),
    of_input(
        "truncate_prompt_tokens",
        _BOTH,
        "whole number",
        "most tokens of the prompt; -1: as many as fit",
    ),
    of_input(
        "truncate_prompt_tokens",
        "embeddings",
        "whole number",
        "most tokens of a text; -1: as many as the model takes",
    ),
    of_input("truncation_side", _BOTH, "text", "`left`: the last ones are kept; `right`", "left"),
    refused("prompt_embeds", "completions", "a prompt as vectors"),
    refused("media_io_kwargs", "chat tokenize", "how media are read", {}),
    refused("mm_processor_kwargs", "chat responses tokenize", "how images are read", {}),
    refused("previous_input_messages", "responses", "earlier messages, unstored"),
    refused("previous_response", "responses", "an earlier response, unstored"),
)
_OUTPUT = (
    of_input(
        "skip_special_tokens", _ALL, "true or false", "false: the text has special tokens", True
    ),
    refused("spaces_between_special_tokens", _BOTH, "no blanks between them", True),
    of_input(
        "prompt_logprobs",
        _BOTH,
        "whole number",
        "likeliest tokens beside the prompt's, to 20",
    ),
    of_input(
        "logprob_token_ids",
        _BOTH,
        "list",
        "up to 128 tokens that `logprobs` report in place of the likeliest",
        [],
    ),
    of_input(
        "return_tokens_as_token_ids",
        _BOTH,
        "true or false",
        "log probabilities name tokens `token_id:7`",
        False,
    ),
    of_input(
        "return_token_ids",
        _BOTH,
        "true or false",
        "ids of the prompt's and the text's tokens",
        False,
    ),
    refused("return_token_offsets", _BOTH, "places of the prompt's tokens", False),
    refused("return_prompt_text", "chat", "the prompt as the template writes it", False),
    refused("return_mm_kwargs", _BOTH, "of images; there is none", True, False),
    refused("routed_experts_prompt_start", _BOTH, "of experts; none is returned", 0),
    refused("stream_interval", _BOTH, "chunks of several tokens", 1),
    refused(
        "enable_response_messages", "responses", "the messages, as the template gets them", False
    ),
)
_SERVING = (
    of_call(
        "stream_options.continuous_usage_stats",
        _BOTH,
        "true or false",
        "each chunk has the usage so far",
        False,
    ),
    refused("kv_transfer_params", _BOTH, "prefill and decode on two servers", {}),
    refused("ec_transfer_params", _BOTH, "an encoder on another server", {}),
    refused("vllm_xargs", _ALL, "arguments of extensions", {}),
    of_input(
        "cache_salt", _ALL, "text", "beginnings are shared with requests of the same one alone"
    ),
    label("priority", _BOTH, "any", "tenants have their shares"),
    label("priority", "responses", "whole number", "tenants have their shares"),
    label("request_id", _BOTH, "any", "answers have ids of their own"),
    label("request_id", "responses", "text", "answers have ids of their own"),
    label("session_id", _ALL, "text", "prefixes are found without it"),
)
_TOKENS = (
    of_input("prompt", "tokenize", "text", "the text, in place of `messages`"),
    of_input(
        "add_special_tokens",
        "tokenize",
        "true or false",
        "the tokenizer's; without it true of `prompt`, false of `messages`",
    ),
    of_input("return_token_strs", "tokenize", "true or false", "names of the tokens", False),
    of_input("tokens", "detokenize", "list", "token ids"),
)
_VECTORS = (
    of_input("use_activation", "embeddings", "true or false", "vectors are normalized"),
    of_input("normalize", "embeddings", "true or false", "the same, as it was named before"),
    refused("messages", "embeddings", "a conversation in place of `input`"),
    refused("add_generation_prompt", "embeddings", "the beginning of an answer", False),
    refused("continue_final_message", "embeddings", "an open end of a conversation", False),
    refused("chat_template", "embeddings", "a template of the client"),
    refused("chat_template_kwargs", "embeddings", "variables of the chat template", {}),
    refused("media_io_kwargs", "embeddings", "how media are read", {}),
    refused("mm_processor_kwargs", "embeddings", "how images are read", {}),
    refused("add_special_tokens", "embeddings", "texts without special tokens", True),
    refused("truncation_side", "embeddings", "texts without their beginnings", "right"),
    refused("padding", "embeddings", "texts of equal length", "do_not_pad"),
    refused("embed_dtype", "embeddings", "numbers of another type in base64", "float32"),
    refused("endianness", "embeddings", "their order of bytes in base64", "native", "little"),
    label("priority", "embeddings", "any", "tenants have their shares"),
    label("request_id", "embeddings", "any", "answers have ids of their own"),
    label("cache_salt", "embeddings", "any", "of a cache that there isn't"),
)
ROWS: tuple[Row, ...] = (
    *_SAMPLING, *_CONSTRAINTS, *_PROMPT, *_OUTPUT, *_SERVING, *_TOKENS, *_VECTORS
)  # fmt: skip
