"""Preparation as an engine."""

from pathlib import Path

import pytest

from jobs.models.model import Model, PreparationModel
from workers.engines import registry
from workers.engines.protocol import Preparer
from workers.preparation.engine import PreparationEngine

CODE = "def prepare(value):\n    return value\n\n\ndef predict(batch):\n    return batch\n"


@pytest.mark.parametrize("engine", ["minilm", "image_classifier", "python"])
def test_it_closes_what_prepares(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "code.py").write_text(CODE)
    options = {"file": str(tmp_path / "code.py")} if engine == "python" else {}
    made: list[Preparer] = []
    load = registry.load_preparer

    def watched(model: Model) -> Preparer:
        made.append(load(model))
        return made[0]

    monkeypatch.setattr(registry, "load_preparer", watched)
    base = Model("m", "1", engine, prepare="pool", options=options)  # type: ignore[arg-type]
    prepares = PreparationEngine(PreparationModel.create(base))
    closed: list[bool] = []
    close = made[0].close
    monkeypatch.setattr(made[0], "close", lambda: (closed.append(True), close()))
    prepares.close()
    assert closed == [True]
