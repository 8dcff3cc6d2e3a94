"""Adapters with artifacts, on a clock of the test's own."""

from jobs.models.adapters import Adapter
from jobs.models.model import AdaptedModel, Model
from workers.process.artifacts.adapters import StagedAdapters

ADAPTER = Adapter("legal", artifact=f"sha256:{'a' * 64}")
MODEL = AdaptedModel.create(Model("m", "1", "encoder", adapters=(ADAPTER,)), ADAPTER)


class Stages:
    """Refuses an adapter so often, then has its files."""

    def __init__(self, refusals: int) -> None:
        self.refusals, self.asked = refusals, 0

    def stage_adapter(self, model: AdaptedModel, stopped: object) -> Adapter:
        self.asked += 1
        if self.asked <= self.refusals:
            return model.adapter.refused("no signature", transient=False)
        return Adapter("legal", "/x", "0" * 64, artifact=ADAPTER.artifact)


def test_one_that_is_refused_is_shown_and_tried_again_with_backoff(now: list[float]) -> None:
    stages = Stages(refusals=2)
    adapters = StagedAdapters(stages, lambda: False)  # type: ignore[arg-type]
    for now[0], asked in ((0.0, 1), (0.9, 1), (1.0, 2), (2.9, 2)):
        assert not adapters.stage([MODEL])["legal"].path
        assert stages.asked == asked
        assert [(row.model, row.state, row.error) for row in adapters.rows()] == [
            ("m:legal@1", "failed", "no signature")
        ]
    now[0] = 3.0
    for _ in range(2):
        assert adapters.stage([MODEL])["legal"].path == "/x"
    assert (adapters.rows(), stages.asked) == ([], 3)
    adapters.forget("m@1")
    adapters.stage([MODEL])
    assert stages.asked == 4


def test_adapters_whose_files_lie_elsewhere_are_left_alone() -> None:
    adapter = Adapter("legal", "/x", "0" * 64)
    model = AdaptedModel.create(Model("m", "1", "encoder"), adapter)
    assert StagedAdapters(None, lambda: False).stage([model]) == {}  # type: ignore[arg-type]
