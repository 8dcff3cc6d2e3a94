"""A platform that is watched."""

import json
from collections.abc import Iterator

import pytest

from tests.acceptance.telemetry.why.scenes import MODELS, TAKES_S, Scene, staged
from tests.support.platforms import Platforms
from tests.support.servers.receiver import Received
from tests.support.servers.upstream import Answer, held_for, serving


@pytest.fixture(scope="module")
def scene(platforms: Platforms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with serving() as upstream:

        def embed(request: Received) -> Answer:
            held_for(TAKES_S[request.path], upstream)
            count = len(json.loads(request.body)["input"])
            return Answer({"data": [{"index": n, "embedding": [0.5]} for n in range(count)]})

        upstream.answer = embed
        models = MODELS.replace("URL", upstream.url)
        with staged(platforms, tmp_path_factory.mktemp("why"), models) as made:
            yield made
