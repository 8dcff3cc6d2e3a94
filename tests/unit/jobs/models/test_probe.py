import pytest

from jobs.models.probe import Probe
from tests.support.cases import each


def test_answers_are_compared_within_the_tolerance() -> None:
    cases = [
        (1.0, 1.0005, ""),
        (1.0, 1.01, "output is 1.01"),
        (100.0, 100.05, ""),
        (3, 4, "output is 4"),
        (3, 3.0001, ""),
        (True, 1, "output is 1, not True"),
        ("a", "b", "output is 'b'"),
        ([1.0, 2.0], [1.0], "output is [1.0]"),
        ([1.0, 2.0], [1.01, 2.5], "input 1 is another one: output[1] is 2.5, not 2.0, off by 0.2"),
        ([1.0, "a"], [9.0, "b"], "output[1] is 'b'"),
        ({"a": [0.5, 0.5]}, {"a": [0.5, 0.6]}, "output.a[1] is 0.6"),
        ({"a": 1}, {"b": 1}, "output is {'b': 1}"),
        (1.0, None, "output is None"),
        (1.0, float("nan"), "output is nan"),
    ]
    for (known, given, place), case in each(cases):
        with case:
            problem = Probe(["x"], [known]).problem([given])
            assert (place in problem) if place else problem == ""


def test_a_probe_survives_its_json() -> None:
    probe = Probe(["ä", {"b": 1}], [[1.5], None], 0.1, {"truncate": 8})
    assert Probe.from_json(probe.as_json()) == probe
    for text in ("{}", '{"inputs": [], "outputs": []}', '{"inputs": [1], "outputs": []}', "x"):
        with pytest.raises(ValueError, match=r"."):
            Probe.from_json(text)
