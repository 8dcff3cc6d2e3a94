"""The bare loop has the launches that the platform would have."""

import pytest

from jobs.models.model import Limits, Model
from ops.bench.baselines.encoders import sorted_launches
from workers.engines import registry

pytestmark = pytest.mark.heavy

TINY = {"hidden": 32, "layers": 1, "heads": 2, "intermediate": 32, "threads": 1}


def test_launches_are_sorted_and_keep_the_models_limits() -> None:
    limits = Limits(max_batch=5, max_tokens=128)
    model = Model("m", "1", "encoder", options=TINY, limits=limits)
    engine = registry.load_engine(model, "cpu")
    texts = ["word " * (n * 7 % 60) for n in range(40)]
    launches = sorted_launches(model, engine, texts, rounds=2)
    sizes = [[len(ids) for ids in launch] for launch in launches]
    in_order = [size for launch in sizes for size in launch]
    assert len(in_order) == 80
    assert in_order == sorted(in_order)
    for launch in sizes:
        assert len(launch) <= 5
        assert sum(launch) <= 128
