"""Entries of the engine `image_classifier`: what fits together."""

from pathlib import Path

import pytest

from jobs.models.engines.engine_spec import EntryContext
from jobs.models.engines.image_options import ImageOptions
from jobs.models.model import Model
from tests.support.cases import each


def test_what_does_not_fit_together_is_told() -> None:
    cases = [
        ({}, "one of builtin, file, module must be set; there is none"),
        ({"module": "m"}, "build is missing"),
        ({"builtin": "resnet"}, "efficientnet-lite0"),
        (
            {"builtin": "efficientnet-lite0", "module": "m", "build": "B"},
            "there are builtin and module",
        ),
        ({"builtin": "efficientnet-lite0", "labels": ["a"]}, "labels: efficientnet-lite0 has its"),
        ({"module": "m", "build": "B", "weights": "w.bin", "sha256": "0"}, "only .safetensors"),
        ({"module": "m", "build": "B", "weights": "w.safetensors"}, "weights goes with sha256"),
        ({"module": "m", "build": "B", "labels": "cat"}, "labels"),
    ]
    for (options, said), case in each(cases):
        with case:
            context = EntryContext(Path("/folder"), "image_classification", {})
            with pytest.raises(ValueError, match=said):
                ImageOptions.model_validate(options, context=context)


def test_lanes_go_by_shapes() -> None:
    model = Model("m", "1", "image_classifier", options={"builtin": "efficientnet-lite0"})
    assert model.effective_task == "image_classification"
    assert len(model.buckets) == 9
    assert model.buckets == model.size_buckets
    assert (model.spec.unit, model.pads) == ("pixels", True)
