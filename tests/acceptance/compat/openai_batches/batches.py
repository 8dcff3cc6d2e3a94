"""The platform that the tests of OpenAI's batches share, and how they submit and read them."""

import json
from typing import Any

import httpx
import openai
from openai.types import Batch
from pydantic import TypeAdapter

from ops.supervisor.platform import Platform
from tests.support.keys import make_key_at
from tests.support.wait import PATIENCE_S, eventually

MODELS = """
[[model]]
name = "vectors"
version = "1"
engine = "function"
task = "embedding"
options = { function = "tests.support.models.paced:vectors" }
limits = { max_batch = 4, in_flight = 1, slice_items = 20 }

[[model]]
name = "talker"
version = "1"
engine = "echo"
task = "chat"
limits = { max_batch = 500, max_item_bytes = 2000 }
"""


ENDED = {"failed", "completed", "expired", "cancelled"}


def client_of(platform: Platform, tenant: str, **more: Any) -> openai.OpenAI:
    key, _ = make_key_at(platform.settings.database_url, tenant, **more)
    return openai.OpenAI(base_url=f"{platform.url}/v1", api_key=key, max_retries=0)


def native_of(platform: Platform, client: openai.OpenAI) -> httpx.Client:
    """The same tenant at the native routes."""
    headers = {"Authorization": f"Bearer {client.api_key}"}
    return httpx.Client(base_url=platform.url, headers=headers)


def embedding(custom_id: str, input: Any, model: str = "vectors", **more: Any) -> dict[str, Any]:
    body = {"model": model, "input": input, **more}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings", "body": body}


def talk(custom_id: str, said: str = "hello") -> dict[str, Any]:
    body = {"model": "talker", "messages": [{"role": "user", "content": said}]}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def upload(client: openai.OpenAI, *lines: Any, purpose: Any = "batch") -> str:
    raw = b"".join(
        (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in lines
    )
    return client.files.create(file=("requests.jsonl", raw), purpose=purpose).id


def create(
    client: openai.OpenAI, *lines: Any, endpoint: Any = "/v1/embeddings", **more: Any
) -> Batch:
    asked: Any = {"completion_window": "24h", **more}
    return client.batches.create(input_file_id=upload(client, *lines), endpoint=endpoint, **asked)


def ended(client: openai.OpenAI, batch: Batch, timeout_s: float = PATIENCE_S) -> Batch:
    def look() -> Batch | None:
        found = client.batches.retrieve(batch.id)
        check(found)
        return found if found.status in ENDED else None

    found = eventually(look, timeout_s)
    assert found is not None
    return found


def check(batch: Batch) -> None:
    """Checks a batch against the package's own types, which it doesn't check itself."""
    TypeAdapter(Batch).validate_python(batch.to_dict(), strict=True)
    order = ["created_at", "in_progress_at", "cancelling_at", "finalizing_at"]
    order += [f"{batch.status}_at"] if batch.status in ENDED else []
    times = [at for name in order if (at := getattr(batch, name, None)) is not None]
    assert times == sorted(times)
    counts = batch.request_counts
    assert counts is not None
    assert counts.completed + counts.failed <= counts.total


def lines_of(client: openai.OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id is not None
    return [json.loads(line) for line in client.files.content(file_id).content.splitlines()]
