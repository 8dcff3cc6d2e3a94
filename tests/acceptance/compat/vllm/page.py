"""The page of vLLM's checks, from their table: `python -m tests.acceptance.compat.vllm.page`."""

from pathlib import Path

from tests.acceptance.compat.vllm import (
    chat_checks,
    completion_checks,
    response_checks,
    server_checks,
    tool_checks,
)

PAGE = Path(__file__).parents[4] / "ops" / "docs" / "reference" / "vllm_checks.md"
CHECKS = (
    *chat_checks.CHECKS,
    *tool_checks.CHECKS,
    *completion_checks.CHECKS,
    *response_checks.CHECKS,
    *server_checks.CHECKS,
)
_INTRO = """# vLLM's HTTP tests

Clients of vLLM rely on what its tests under `tests/entrypoints` demand of its server: of
`openai/` and, of routes that stood there before, `serve/`. Each of them that applies to a small
text model, as the sample `smollm2`, is a check here with requests and demands of its own
(`tests/acceptance/compat/vllm/`), which a model of random weights answers: what depends on how
well a model answers is left out. **{passed} of {whole} pass** ({share:.1f} %). The page is
generated from the table of the checks, and a test runs them.

Left out as they don't apply:

- audio, video, images, prompts as vectors, LoRA, other models' formats (Harmony, reasoning),
  speculative decoding, sleep mode, elastic and disaggregated serving;
- tests of classes, functions and arguments of the command line, without a server, or with an
  engine that is a mock;
- servers that are started with an option that isn't the default: `--root-path`,
  `--enable-force-include-usage`, `--enable-server-load-tracking`,
  `--enable-tokenizer-info-endpoint`, `--max-logprobs` (`logprob_token_ids`, `top_logprobs: -1`),
  `--enable-request-id-headers`, `--api-key`;
- metrics by vLLM's names, the load of `test_request_cancellation`, MCP and tools that a server
  runs.
"""


def page() -> str:
    """Returns the text of the page."""
    passed = [one for one in CHECKS if not one.differs]
    share = 100 * len(passed) / len(CHECKS)
    intro = _INTRO.format(passed=len(passed), whole=len(CHECKS), share=share)
    rows = (f"| `{one.name}` | {one.differs or 'passes'} |" for one in CHECKS)
    lines = ["| check | |", "| --- | --- |", *sorted(rows)]
    return intro + "\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
