"""Frames of a model's code as text: bounded, and nothing of the machine or its data in it."""

from pathlib import Path

import pytest

from workers.engines import frames
from workers.engines.common.user_code import Source
from workers.engines.protocol import Permanent

MODEL = """
def predict(depth, secret="the caller's data"):
    if depth:
        return predict(depth - 1)
    raise KeyError("missing")

class Odd(Exception):
    __slots__ = ()
    def __str__(self):
        raise RuntimeError("no text")

def odd():
    raise Odd
"""


@pytest.fixture
def source(tmp_path: Path) -> Source:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    return Source(file=str(file))


def failed(source: Source, depth: int) -> Permanent:
    with pytest.raises(Permanent) as found:
        source.call(source.need("predict"), depth)
    return found.value


def test_code_of_a_model_is_named_by_file_line_and_function(source: Source) -> None:
    error = failed(source, 0)
    text = frames.of(error)
    assert text == (
        'File "model.py", line 5, in predict\n    raise KeyError("missing")\nKeyError: \'missing\''
    )
    frames.keep(error, ValueError("another"))
    assert frames.of(error) == text, "the first frames noted stay"


def test_the_last_frames_of_many_are_kept(source: Source) -> None:
    text = frames.of(failed(source, 300))
    assert len(text.encode()) <= frames.MOST_BYTES
    assert text.endswith("KeyError: 'missing'")
    assert "secret" not in text
    assert "data" not in text


def test_an_exception_without_a_text_has_no_frames(source: Source) -> None:
    odd = source.module.Odd()
    frames.keep(odd, odd)
    assert frames.of(odd) == ""
