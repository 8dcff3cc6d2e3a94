"""The platform that the tests of OpenAI's batches share, and how they submit and read them."""

import json
from typing import Any

import httpx
from openai import OpenAI
from openai.types import Batch
from pydantic import TypeAdapter

from ops.supervisor.platform import Platform
from tests.support.clients import bearer, chat
from tests.support.models.entries import function, model
from tests.support.wait import PATIENCE_S, eventually

MODELS = function(
    "paced:vectors", task="embedding", limits={"max_batch": 4, "in_flight": 1, "slice_items": 20}
) + model("talker", "echo", task="chat", limits={"max_batch": 500, "max_item_bytes": 2000})
ENDED = {"failed", "completed", "expired", "cancelled"}


def native_of(platform: Platform, client: OpenAI) -> httpx.Client:
    """The same tenant at the native routes."""
    return httpx.Client(base_url=platform.url, headers=bearer(client.api_key))


def line(custom_id: str, url: str, **body: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def embedding(custom_id: str, input: Any, model: str = "vectors", **more: Any) -> dict[str, Any]:
    return line(custom_id, "/v1/embeddings", model=model, input=input, **more)


def talk(custom_id: str, said: str = "hello") -> dict[str, Any]:
    return line(custom_id, "/v1/chat/completions", model="talker", **chat(said))


def upload(client: OpenAI, *lines: Any, purpose: Any = "batch") -> str:
    raw = b"".join(
        (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in lines
    )
    return client.files.create(file=("requests.jsonl", raw), purpose=purpose).id


def create(client: OpenAI, *lines: Any, endpoint: Any = "/v1/embeddings", **more: Any) -> Batch:
    asked: Any = {"completion_window": "24h", **more}
    return client.batches.create(input_file_id=upload(client, *lines), endpoint=endpoint, **asked)


def ended(client: OpenAI, batch: Batch, timeout_s: float = PATIENCE_S) -> Batch:
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


def faults(batch: Batch) -> list[Any]:
    """Faults of the file of a batch that failed."""
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data is not None
    return batch.errors.data


def counts_of(batch: Batch) -> tuple[int, int, int]:
    """All requests of a batch, those that succeeded, and those that failed."""
    assert batch.request_counts is not None
    found = batch.request_counts
    return found.total, found.completed, found.failed


def lines_of(client: OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id is not None
    return [json.loads(line) for line in client.files.content(file_id).content.splitlines()]
