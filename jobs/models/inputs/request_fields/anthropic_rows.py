"""Fields of Anthropic's messages, those of its beta included.

https://docs.anthropic.com/en/api/messages
"""

from jobs.models.inputs.request_fields.row import Row, label, of_input, refused

_ON = "messages"

_INPUT = (
    of_input("messages", _ON, "list", "the conversation"),
    of_input("system", _ON, "any", "a system message before it: a text, or blocks"),
    of_input("max_tokens", _ON, "whole number", "most tokens of the message"),
    of_input("stop_sequences", _ON, "list", "up to 16 texts that end the text", []),
    of_input("tools", _ON, "list", "tools of the client", []),
    of_input("tools[].type", _ON, "text", "`custom`", "custom"),
    of_input("tools[].name", _ON, "text", "its name"),
    of_input("tools[].description", _ON, "text", "for the chat template", ""),
    of_input("tools[].input_schema", _ON, "object", "JSON schema of its input"),
    of_input("tools[].strict", _ON, "true or false", "its input is valid by it", False),
    of_input("tool_choice", _ON, "object", "of the type `auto`, `none`, `any`, `tool`"),
    of_input("tool_choice.type", _ON, "text", "`auto`, `none`, `any`, `tool`"),
    of_input("tool_choice.name", _ON, "text", "the tool"),
    of_input(
        "tool_choice.disable_parallel_tool_use", _ON, "true or false", "one call at most", False
    ),
    of_input("output_config", _ON, "object", "form of the text", {}),
    of_input("output_config.format", _ON, "object", "a schema that the text is valid by"),
    of_input("output_config.format.type", _ON, "text", "`json_schema`"),
    of_input("output_config.format.schema", _ON, "object", "the schema"),
    of_input("output_format", _ON, "object", "`output_config.format`, as it was named before"),
    of_input("output_format.type", _ON, "text", "`json_schema`"),
    of_input("output_format.schema", _ON, "object", "the schema"),
    of_input("thinking", _ON, "object", "reasoning before the answer"),
    of_input("thinking.type", _ON, "text", "`adaptive` or `enabled`: with it; `disabled`: without"),
)
_LABELS = (
    label("metadata", _ON, "object", "`user_id`: for routes that keep users at a version"),
    label("service_tier", _ON, "text", "classes of price elsewhere"),
    label("inference_geo", _ON, "text", "regions elsewhere"),
    label("user_profile_id", _ON, "text", "profiles elsewhere"),
    label("betas", _ON, "list", "nothing here depends on them"),
    label("cache_control", _ON, "object", "the prefix cache needs no mark"),
    label("tools[].cache_control", _ON, "object", "the same"),
    label("tools[].eager_input_streaming", _ON, "true or false", "a call comes as one delta"),
    label("output_config.effort", _ON, "text", "no model is told it"),
    label("thinking.budget_tokens", _ON, "whole number", "no model is told it"),
    label("thinking.display", _ON, "text", "thinking is part of the text"),
)
_REFUSED = (
    refused("output_config.task_budget", _ON, "tokens that the model is told of"),
    refused("tools[].allowed_callers", _ON, "calls by programs", ["direct"], []),
    refused("tools[].defer_loading", _ON, "tools that a search finds", False),
    refused("tools[].input_examples", _ON, "examples for the model", []),
    refused("context_management", _ON, "a conversation that is shortened", {"edits": []}, {}),
    refused("compaction", _ON, "a summary of the conversation"),
    refused("thread", _ON, "a conversation that the server stores"),
    refused("container", _ON, "a machine for tools of the provider"),
    refused("mcp_servers", _ON, "tools of other servers", []),
    refused("diagnostics", _ON, "a diagnosis of the cache", {}),
    refused("speed", _ON, "a faster model", "standard"),
    refused("fallbacks", _ON, "other models, where one declines", [], "default"),
    refused("fallback_credit_token", _ON, "a lower price for a fallback"),
    refused(
        "billing_policy",
        _ON,
        "another payer",
        {"type": "billing_policy"},
        {"type": "billing_policy", "bill_to": "self"},
    ),
    refused("workspace_id", _ON, "workspaces: a key belongs to a tenant"),
)
ROWS: tuple[Row, ...] = (*_INPUT, *_LABELS, *_REFUSED)
