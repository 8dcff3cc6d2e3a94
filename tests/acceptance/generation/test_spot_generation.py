"""Texts that a spot worker generates when its machine is reclaimed go on with another worker: each
token once, billed once. A tiny Llama in fp32, real processes."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import text

from jobs.calls.keys import Keys
from millrace import Client
from ops.supervisor.platform import Platform
from tests.acceptance.generation.test_survival import Read
from tests.support.children import until
from tests.support.generation import tiny_llama
from tests.support.jobs import finish, scalar_of
from tests.support.pace import pace
from tests.support.platforms import Platforms, spec, transaction
from tests.support.spot_workers import SpotWorker, spot_worker
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly
_TOKENS = 400
_LENGTH = {"max_tokens": _TOKENS, "min_tokens": _TOKENS, "temperature": 0}
_PROMPTS = [f"The cat {n} sat" for n in range(6)]


@pytest.fixture(scope="module")
def platform(platforms: Platforms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder = tiny_llama.save(tmp_path_factory.mktemp("tiny"), max_position_embeddings=2048)
    few = len(_PROMPTS) // 2  # so that one worker alone can't have all
    models = tiny_llama.entry(folder, sequences=few, limits={"slice_items": 3})
    with platforms.running(spec(models, lease_s=5.0 * pace())) as started:
        yield started


@pytest.fixture(scope="module")
def undisturbed(platform: Platform) -> list[str]:
    return [read(platform, prompt) for prompt in _PROMPTS]


def read(platform: Platform, prompt: str) -> str:
    """Reads a stream to its end, whose tokens come in order, each once."""
    spot_may = {"class": "standard"}  # a call of the class interactive stays with other workers
    found = Read().run(platform.url, "tiny", {"prompt": prompt, **_LENGTH}, **spot_may)
    assert (len(found.tokens[0]), found.finished) == (_TOKENS, [0]), found.last
    return found.texts[0]


def generates(spot: SpotWorker) -> bool:
    """Returns True while it has calls that have generated something."""
    spot.platform.poll()
    with redis.Redis.from_url(spot.platform.settings.redis_url) as client:
        taken: Any = client.hgetall(Keys("tiny@1")("taken"))
        its = [id for id, by in taken.items() if by.decode().startswith(f"{spot.incarnation}#")]
        return any(client.llen(Keys("tiny@1").log(id.decode())) > 5 for id in its)


def checkpointed(spot: SpotWorker) -> bool:
    query = text("""
        SELECT count(*) FROM slices s JOIN checkpoints c
            ON c.job_id = s.job_id AND c.seq >= s.start AND c.seq < s.stop
        WHERE s.state = 'leased' AND s.lease_owner = :id""")
    spot.platform.poll()
    with transaction(spot.platform) as tx:
        return bool(tx.scalar(query, {"id": spot.incarnation}))


@pytest.mark.parametrize("notice", [True, False])
def test_streams_go_on_elsewhere(
    platform: Platform, undisturbed: list[str], tmp_path: Path, notice: bool
) -> None:
    with spot_worker(platform, tmp_path) as spot, ThreadPoolExecutor(len(_PROMPTS)) as pool:
        reading: list[Future[str]] = []

        def spot_generates() -> bool:
            if all(one.done() for one in reading):  # the other worker had them all
                reading.extend(pool.submit(read, platform, prompt) for prompt in _PROMPTS)
            return generates(spot)

        eventually(spot_generates)
        spot.reclaim() if notice else spot.vanish()
        until(platform, lambda: all(one.done() for one in reading))
        rounds = len(reading) // len(_PROMPTS)
        assert [one.result() for one in reading] == undisturbed * rounds


@pytest.mark.parametrize("notice", [True, False])
def test_items_go_on_from_their_checkpoints_and_are_billed_once(
    platform: Platform, client: Client, undisturbed: list[str], tmp_path: Path, notice: bool
) -> None:
    with spot_worker(platform, tmp_path) as spot:
        inputs = [{"prompt": prompt, **_LENGTH} for prompt in _PROMPTS]
        jobs = [client.jobs.submit("tiny", inputs).id]

        def spot_has_checkpoints() -> bool:
            if client.jobs.get(jobs[-1])["state"] == "completed":  # by the other worker alone
                jobs.append(client.jobs.submit("tiny", inputs).id)
            return checkpointed(spot)

        eventually(spot_has_checkpoints)
        job = jobs[-1]
        spot.reclaim() if notice else spot.vanish()
        outputs = [result.output for result in finish(platform, client, job)]
        assert [output["choices"][0]["text"] for output in outputs] == undisturbed
        billed = "SELECT sum(output_tokens) FROM usage WHERE job_id = :job"
        assert scalar_of(platform, job, billed) == _TOKENS * len(_PROMPTS)
