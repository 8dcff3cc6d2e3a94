"""Python files of the operator's own: what they may have, and how their faults are told, without
anything of the machine or its data."""

import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.artifacts.declared import Untrusted
from tests.support.models import custom_models
from workers.device import bisection
from workers.engines import frames
from workers.engines.common.user_code import Faulty, Source
from workers.engines.protocol import DeviceFailed, InvalidInput, Permanent, Prepared, Transient
from workers.engines.python import PythonCode


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mine.py"


def engine(path: Path, text: str, **options: Any) -> PythonCode:
    path.write_text(text)
    return PythonCode(file=str(path), **options)


def outputs(engine: PythonCode, *inputs: Any) -> list[Any]:
    batch = [one.data for one in engine.prepare(inputs, {}) if isinstance(one, Prepared)]
    return bisection.run(engine.run, batch, {})


@pytest.mark.parametrize(
    ("text", "inputs", "expected"),
    [
        ("def predict(batch): return [2 * n for n in batch]", [1, 2], [2, 4]),
        ("def load(): return 10\ndef predict(model, batch): return [model + n for n in batch]",
         [1, 2], [11, 12]),
        ("def load():\n global m\n m = 5\ndef predict(batch, by=2): return [m * by] * len(batch)",
         [1], [10]),
    ],
    ids=["predict alone", "load gives the model to predict", "load keeps the model to itself"],
)  # fmt: skip
def test_a_file_has_predict_and_maybe_load(
    path: Path, text: str, inputs: list[int], expected: list[int]
) -> None:
    assert outputs(engine(path, text), *inputs) == expected


def test_a_class_of_the_file_works_as_anywhere(path: Path) -> None:
    """dataclasses and typing look a class's module up."""
    text = """
from dataclasses import dataclass
from typing import get_type_hints

@dataclass
class Out:
    x: "int"

def predict(batch):
    assert get_type_hints(Out) == {"x": int}
    return [Out(n).x for n in batch]
"""
    assert outputs(engine(path, text), 7) == [7]


def test_two_versions_of_a_file_dont_meet(path: Path) -> None:
    one = engine(path, "N = 1\ndef predict(batch): return [N for _ in batch]")
    two = engine(path, "N = 2\ndef predict(batch): return [N for _ in batch]")
    assert (outputs(one, 0), outputs(two, 0)) == ([1], [2])
    before = set(sys.modules)
    two.close()
    assert len(before - set(sys.modules)) == 1
    assert outputs(one, 0) == [1]


def line_of(code: str) -> int:
    return custom_models.PYTHON.splitlines().index(f"        {code}") + 1


def test_prepare_sees_each_input_and_may_refuse_it(path: Path) -> None:
    made = engine(path, custom_models.PYTHON).prepare(["a", "refuse", "stumble"], {})
    assert [type(one) for one in made] == [Prepared, InvalidInput, InvalidInput]
    stumbled = f"mine.py:{line_of('return [][0]')}: IndexError: list index out of range"
    assert [str(no) for no in made[1:]] == ["not this one", stumbled]


def test_one_that_breaks_fails_alone_with_its_line(path: Path) -> None:
    found = outputs(engine(path, custom_models.PYTHON), "a", "raise", "b", "later")
    line = line_of('raise RuntimeError("can\'t stand it")')
    assert (found[0], found[2]) == ("a!", "b!")
    assert isinstance(found[1], Permanent)
    assert str(found[1]) == f"mine.py:{line}: RuntimeError: can't stand it"
    assert found[1].__context__ is None  # whose frames would hold the launch
    assert isinstance(found[3], Transient), "what is worth another try stays what it is"


@pytest.mark.parametrize("returned", ["'ab'", "None", "{1: 2, 3: 4}", "iter(batch)"])
def test_what_predict_returns_must_be_a_list(path: Path, returned: str) -> None:
    found = outputs(engine(path, f"def predict(batch): return {returned}"), 1, 2)
    assert all("predict must return a list" in str(error) for error in found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def load(): pass", "has no function predict"),
        ("predict = 5", "mine.py: predict is no function"),
        ("def predict(): pass", r"predict takes 0 arguments; it must be \(batch\) or"),
        ("def predict(a, b, c): pass", "predict takes 3 arguments"),
        ("x = 1\nimport absent_module", "mine.py:2: ModuleNotFoundError"),
        ("x = 1\n\ndef predict(batch:\n", "mine.py:3: SyntaxError"),
        ("SAMPLES = 5\ndef predict(batch): pass", "SAMPLES must be a list"),
    ],
)
def test_a_file_that_cant_be_used_says_why_and_where(path: Path, text: str, said: str) -> None:
    with pytest.raises(Faulty, match=said):
        engine(path, text)


def test_a_file_that_is_not_there_or_a_load_that_fails_says_where(path: Path) -> None:
    with pytest.raises(Faulty, match=r"mine\.py can't be read"):
        PythonCode(file=str(path))
    text = "def load():\n    return open('/absent/model.bin')\ndef predict(batch): return batch"
    with pytest.raises(Permanent, match=r"mine\.py:2: FileNotFoundError"):
        engine(path, text)


def test_a_file_with_a_declared_checksum_is_that_file(path: Path) -> None:
    path.write_text(custom_models.PYTHON)
    digest = custom_models.digest(path)
    assert outputs(engine(path, custom_models.PYTHON, file_sha256=digest), "a") == ["a!"]
    with pytest.raises(Untrusted, match="is not the file that was declared"):
        engine(path, "raise SystemExit", file_sha256="0" * 64)


def test_a_module_will_do_as_well() -> None:
    assert outputs(PythonCode(module="tests.unit.workers.engines.predicting"), "a") == ["A"]
    with pytest.raises(Faulty, match=r"options.module is 'absent\.module'"):
        PythonCode(module="absent.module")


def test_a_failed_device_is_told_from_a_failed_input_and_a_probe_that_raises_is_one(
    path: Path,
) -> None:
    text = """
def load(): return 10
def probe(model): assert predict(model, [1]) == [11], "wrong sum"
def predict(model, batch): return [model + n for n in batch]
"""
    engine(path, text).probe()
    with pytest.raises(DeviceFailed, match=r"mine\.py:3: AssertionError: wrong sum"):
        engine(path, text.replace("return 10", "return 9")).probe()
    text = "def predict(batch): raise RuntimeError('CUDA error: unspecified launch failure')"
    with pytest.raises(DeviceFailed):
        outputs(engine(path, text), 1, 2)


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
