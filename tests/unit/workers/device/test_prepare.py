"""Inputs as entries: each in its lane, each rejection in its place."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from jobs.intake import validation
from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Model
from workers.device.prepare import prepare
from workers.engines.echo import Echo
from workers.engines.protocol import InvalidInput, Prepared
from workers.scheduler.entries import Entry

ECHO, MINILM = SAMPLES.resolve("echo"), SAMPLES.resolve("minilm")
PADDED = replace(MINILM, options={"layout": "padded"})


class Stumbling(Echo):
    """Sizes are the numbers in the texts; "odd" is refused, "broken" and "exit" break all."""

    def prepare(self, inputs: Sequence[Any], params: Any) -> list[Prepared | InvalidInput]:
        if "exit" in inputs:
            sys.exit("enough")
        if "broken" in inputs:
            raise RuntimeError("what is this")
        return [InvalidInput("odd") if x == "odd" else Prepared(int(x), x) for x in inputs]


def lanes_or_words(inputs: Sequence[Any], **params: Any) -> list[str]:
    """The lane of each input, or why it was refused."""
    made = prepare(PADDED, Stumbling(), inputs, params)
    return [entry.lane if isinstance(entry, Entry) else str(entry) for entry in made]


def test_inputs_go_to_the_lane_of_their_parameters_and_their_length_where_that_counts() -> None:
    assert lanes_or_words(["1", "16", "17", "256"]) == ["{}/16", "{}/16", "{}/24", "{}/256"]
    assert lanes_or_words(["1"], normalize=False) == ['{"normalize":false}/16']
    made = prepare(MINILM, Stumbling(), ["1", "17", "256"], {})
    assert [(one.lane, one.size) for one in made] == [("{}/0", 1), ("{}/0", 17), ("{}/0", 256)]
    made = prepare(ECHO, Echo(), ["a", "a" * 5000, None], {})
    assert [(one.lane, one.size) for one in made] == [("{}/0", 1), ("{}/0", 5000), ("{}/0", 1)]


NO_TEXT = "minilm@1 takes a text, its token ids, or a list of either, not a number"


def test_what_is_refused_or_stumbled_over_is_refused_alone_in_its_place() -> None:
    assert lanes_or_words(["1", 7, "odd", "2"]) == ["{}/16", NO_TEXT, "odd", "{}/16"]
    words = "RuntimeError: what is this"
    assert lanes_or_words(["1", "broken", "17"]) == ["{}/16", words, "{}/24"]
    assert lanes_or_words(["1", "exit"]) == ["{}/16", "SystemExit: enough"]
    assert lanes_or_words(["1", "broken", 7]) == ["{}/16", words, NO_TEXT]


def test_an_input_that_breaks_its_models_check_is_rejected_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(model: Model, value: Any) -> None:
        if value == "breaks":
            raise TypeError("unhashable type: 'list'")

    monkeypatch.setattr(validation, "refuse_input", refuse)
    monkeypatch.setattr(validation, "takes_any_text", lambda model: False)
    found = lanes_or_words(["1", "breaks", "17"])
    assert found == ["{}/16", "TypeError: unhashable type: 'list'", "{}/24"]
