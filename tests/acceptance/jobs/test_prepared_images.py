"""Images that a worker without torch decodes, some from their addresses, and a device worker
classifies: the results are those of a model that prepares by itself."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from jobs.models.model import Limits, Model
from millrace import Client
from ops.bench.harness.models_files import models_file
from ops.supervisor.platform import Platform
from tests.support.children import pid_of
from tests.support.jobs import run
from tests.support.models import images
from tests.support.platforms import POOLS, transaction
from tests.support.servers.receiver import Receiver, Reply

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


def file_of(number: int) -> bytes:
    if number == TRUNCATED:
        return images.hostile()["truncated jpeg"][0]
    turned = images.picture(*SIZES[number % len(SIZES)]).point(lambda value: (value + number) % 256)
    return images.saved(turned, "JPEG" if number % 2 else "PNG")


def labels(result: dict[str, Any]) -> dict[str, float]:
    return {pair["label"]: pair["score"] for pair in result["output"]}


def test_images_have_the_same_labels_whoever_decodes_them(
    platform: Platform, client: Client, receiver: Receiver
) -> None:
    files = [file_of(number) for number in range(60)]
    receiver.reply = lambda request: Reply(200, body=files[int(request.path[1:])])
    items = [
        f"http://127.0.0.1:{receiver.port}/{number}" if number % 3 == 1 else images.encoded(one)
        for number, one in enumerate(files)
    ]
    found, expected = (run(platform, client, name, items) for name in ("pooled", "alone"))
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
    with open(f"/proc/{pid_of(platform, 'prepare-1')}/maps") as maps:
        assert "libtorch" not in maps.read()
