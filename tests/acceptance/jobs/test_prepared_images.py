"""Images that a worker without torch decodes, some from their addresses, and a device worker
classifies: the results are those of a model that prepares by itself."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from jobs.models.model import Limits, Model
from millrace import Client
from ops.bench.harness.models_files import models_file
from ops.supervisor.platform import Platform
from tests.support.models import images
from tests.support.platforms import POOLS, transaction
from tests.support.servers.receiver import Receiver, Reply, receiving

ALONE = Model(
    "alone",
    "1",
    "image_classifier",
    fetch=True,
    options={"module": "workers.engines.classifier", "build": "RandomClassifier"},
    limits=Limits(max_batch=8, max_item_bytes=1_400_000, slice_items=20),
)
POOLED = replace(ALONE, name="pooled", prepare="pool")
MODELS = models_file(ALONE, POOLED)
PLATFORM = POOLS
SIZES = [(80, 60), (60, 80), (100, 100), (90, 160), (320, 160)]
TRUNCATED = 17


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def file_of(number: int) -> bytes:
    if number == TRUNCATED:
        return images.hostile()["truncated jpeg"][0]
    turned = images.picture(*SIZES[number % len(SIZES)]).point(lambda value: (value + number) % 256)
    return images.saved(turned, "JPEG" if number % 2 else "PNG")


def results(client: Client, model: str, items: list[str]) -> list[dict[str, Any]]:
    """Returns the results of a job with these items."""
    job = client.jobs.submit(model, (json.dumps(item).encode() + b"\n" for item in items))["id"]
    client.jobs.wait(job)
    return list(client.jobs.results(job))


def labels(result: dict[str, Any]) -> dict[str, float]:
    return {pair["label"]: pair["score"] for pair in result["output"]}


def test_images_have_the_same_labels_whoever_decodes_them(
    platform: Platform, client: Client, server: Receiver
) -> None:
    files = [file_of(number) for number in range(60)]
    server.reply = lambda request: Reply(200, body=files[int(request.path[1:])])
    items = [
        f"http://127.0.0.1:{server.port}/{number}" if number % 3 == 1 else images.encoded(one)
        for number, one in enumerate(files)
    ]
    found, expected = results(client, "pooled", items), results(client, "alone", items)
    with transaction(platform) as tx:
        query = "SELECT sum(items) FROM launches WHERE model = 'pooled' AND version = '1~prepare'"
        assert tx.scalar(text(query)) >= len(items)
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one["outcome"] == other["outcome"] == ("failed" if number == TRUNCATED else
                                                      "succeeded")  # fmt: skip
        if number == TRUNCATED:
            assert one["error"] == other["error"]
            assert "can't decode this JPEG" in one["error"]["message"]
        else:
            assert labels(one) == pytest.approx(labels(other), abs=1e-4)
    children = {child.name: child for child in platform.supervisor.children}
    with open(f"/proc/{children['prepare-1'].pid}/maps") as maps:
        assert "libtorch" not in maps.read()
