"""Clients of OpenAI's and Anthropic's packages for a platform."""

import json
from typing import Any

import anthropic
import openai

from ops.supervisor.platform import Platform
from tests.support.keys import make_key_at
from tests.support.wait import eventually


def openai_with(platform: Platform, key: str) -> openai.OpenAI:
    """A client with a key; empty: with none that counts."""
    return openai.OpenAI(base_url=f"{platform.url}/v1", api_key=key or "none", max_retries=0)


def openai_of(platform: Platform, tenant: str, **more: Any) -> openai.OpenAI:
    """A client of a tenant, by a new key. more: of the key."""
    return openai_with(platform, make_key_at(platform.settings.database_url, tenant, **more)[0])


def anthropic_with(platform: Platform, key: str) -> anthropic.Anthropic:
    """A client with a key; empty: with none that counts."""
    return anthropic.Anthropic(base_url=platform.url, api_key=key or "none", max_retries=0)


def openai_batch(client: openai.OpenAI, endpoint: Any, *bodies: Any) -> tuple[list[Any], list[Any]]:
    """Sends bodies as a batch; returns the lines of its output and of its errors."""
    lines = [
        json.dumps({"custom_id": str(n), "method": "POST", "url": endpoint, "body": body})
        for n, body in enumerate(bodies)
    ]
    file = client.files.create(file=("a.jsonl", "\n".join(lines).encode()), purpose="batch")
    asked: Any = {"input_file_id": file.id, "completion_window": "24h"}
    made = client.batches.create(endpoint=endpoint, **asked)

    def ended() -> Any:
        found = client.batches.retrieve(made.id)
        assert found.status not in ("failed", "expired", "cancelled"), found.errors
        return found.status == "completed" and found

    batch = eventually(ended)
    output, errors = (
        [json.loads(line) for line in client.files.content(id).text.splitlines()] if id else []
        for id in (batch.output_file_id, batch.error_file_id)
    )
    return output, errors


def anthropic_ended(client: anthropic.Anthropic, id: str) -> Any:
    return eventually(
        lambda: (b := client.messages.batches.retrieve(id)).processing_status == "ended" and b
    )
