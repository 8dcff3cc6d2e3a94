"""`millrace simulate` and `millrace plan`, from their options to what they print."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Model
from ops.cli.commands.platform import simulate
from ops.cli.main import main
from ops.simulation import launches
from ops.simulation.capacity import Capacity
from ops.simulation.launches import TimesError
from tests.support import thread_clock
from tests.support.command_line import json_of, run_millrace
from tests.unit.workers.simulation.made import batches_of, poisson
from workers.simulation.costs import LaunchTimes

pytestmark = pytest.mark.heavy

MODELS = """
[[model]]
name = "shout"
version = "1"
engine = "function"
target_ms = 200
options = { function = "some:thing" }
limits = { max_batch = 32 }

[[device]]
name = "small"
price_per_hour = 1.0

[[device]]
name = "large"
price_per_hour = 1.4
speed = 2.0
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "models.toml").write_text(MODELS)
    lines = [f"{at_s:.6f}" for at_s, _ in poisson(100, 10)]
    (tmp_path / "calls.csv").write_text("\n".join(lines))
    trace, models = tmp_path / "calls.csv", tmp_path / "models.toml"
    return ["--trace", str(trace), "--model", "shout", "--models", str(models)]


def test_a_simulation_says_what_became_of_the_calls(files: list[str]) -> None:
    words = ("simulate", *files, "--replicas", "2", "--launch-ms", "100")
    shown = run_millrace(*words).output
    for word in ("shout@1", "p95", "missed", "refused", "pace", "launches", "device time"):
        assert word in shown
    found = json_of(*words, "--load", "0.5")  # of what the replicas can do
    assert found["rate_per_s"] == pytest.approx(0.5 * 2 * 320)
    assert found["miss_share"] == 0
    assert 100 < found["latency_ms"]["95"] < 200


def test_a_job_beside_the_calls_is_counted_and_printed_times_are_used_again(
    files: list[str], tmp_path: Path
) -> None:
    words = ("simulate", *files, "--replicas", "1", "--launch-ms", "50", "--rate", "300")
    assert json_of(*words)["items_run"] == 0
    assert json_of(*words, "--job")["items_per_s"] > 100
    words = ("simulate", *files, "--replicas", "2", "--rate", "50", "--seed", "3")
    first = json_of(*words, "--launch-ms", "20,0.5,0.01,0.001")
    (tmp_path / "kept.json").write_text(json.dumps(first))
    assert json_of(*words, "--profile", str(tmp_path / "kept.json")) == first


def test_a_plan_names_the_least_of_each_kind_and_the_cheapest(files: list[str]) -> None:
    words = ("plan", *files, "--launch-ms", "100", "--rate", "900")
    found = json_of(*words)
    small, large = found["devices"]
    assert found["cheapest"] == "large"
    assert (small["formula_replicas"], large["formula_replicas"]) == (4, 2)
    assert (small["replicas"], large["replicas"]) == (3, 2)
    assert large["price_per_hour"] == 2.8
    table = run_millrace(*words).output
    assert "<- cheapest" in table
    assert "replicas = ceil(rate x time per item / batch / utilisation)" in table
    assert "ceil(900.0/s x 3.125 ms / 0.8) = 4" in table


def test_a_plan_may_be_for_more_load_than_the_trace_has(files: list[str]) -> None:
    words = ("plan", *files, "--launch-ms", "100", "--rate", "300")
    once, thrice = json_of(*words), json_of(*words, "--load-factor", "3")
    assert thrice["rate_per_s"] == pytest.approx(3 * once["rate_per_s"])
    assert thrice["devices"][0]["replicas"] > once["devices"][0]["replicas"]


def refused(*words: str) -> str:
    done = CliRunner().invoke(main, words)
    assert done.exit_code != 0
    return done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--launch-ms", "soon"), "--launch-ms takes up to four numbers"),
        (("--launch-ms", "1,2,3,4,5"), "--launch-ms takes up to four numbers"),
        (("--launch-ms", "0"), "none below 0 and not all 0"),
        (("--launch-ms", "1", "--profile", "x"), "--profile and --launch-ms exclude each other"),
        (("--launch-ms", "1", "--rate", "1", "--load", "1"), "--rate and --load exclude"),
        (("--profile", "nowhere.json"), "nowhere.json can't be read"),
        (("--launch-ms", "1", "--model", "other"), "the model 'other' does not exist here"),
        (("--launch-ms", "1", "--trace", "nowhere.csv"), "nowhere.csv can't be read"),
    ],
)
def test_faulty_options_are_refused(files: list[str], words: tuple[str, ...], said: str) -> None:
    assert said in refused("simulate", *files, "--replicas", "1", *words)


def test_what_is_wrong_with_kept_launch_times_is_said_and_without_any_they_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text, said in (
        ("{", "is not JSON"),
        ("[]", "has no launch_times"),
        ('{"fixed_ms": "1"}', "must be numbers"),
        ('{"fixed_ms": 1, "ratios": []}', "must be numbers"),
        ('{"fixed_ms": 1, "model": "other@1"}', "holds the times of other@1"),
    ):
        (tmp_path / "kept.json").write_text(text)
        with pytest.raises(TimesError, match=said):
            launches.from_file(tmp_path / "kept.json", SAMPLES.resolve("minilm"))
    thread_clock.install(monkeypatch)
    steady = {"function": "tests.support.models.paced:steady", "samples": ["a"]}
    times = launches.measured(Model("steady", "1", "function", options=steady), "")
    assert times.fixed_s == pytest.approx(0.1)


def test_a_picture_is_drawn_or_what_it_lacks_is_said(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("simulate", *files, "--replicas", "1", "--launch-ms", "50", "--picture")
    path = tmp_path / "picture.svg"
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install 'millrace[bench]'" in refused(*words, str(path))
    monkeypatch.undo()
    pytest.importorskip("matplotlib")
    run_millrace(*words, str(path))
    assert path.read_text().startswith("<?xml")


# -- the formula and its numbers


def test_the_formula_rounds_up_once() -> None:
    """Launches of 32 in 100 ms, at 70 %."""
    capacity = Capacity.of(batches_of(32), LaunchTimes(0.1), [1])
    rates = [10_000 / 60, 500, 1000, 5000, 10_000]
    assert [capacity.replicas(per_s, 0.7) for per_s in rates] == [1, 3, 5, 23, 45]
    assert [capacity.rounded_first(per_s, 0.7) for per_s in rates] == [2, 3, 6, 23, 46]


def test_calls_may_come_at_a_rate(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "_POISSON_CALLS", 500)
    words = ("plan", *files[2:], "--launch-ms", "100", "--utilisation", "0.7")
    found = json_of(*words, "--rate", "1000")
    assert found["rate_per_s"] == pytest.approx(1000)
    assert found["devices"][0]["formula_replicas"] == 5
    assert found["devices"][0]["rounded_first_replicas"] == 6
    assert "; whole busy devices first: 6" in run_millrace(*words, "--rate", "1000").output
    assert "a --trace, or a --rate, is needed" in refused(*words)
    assert "lengths: give a --trace" in refused("plan", "--model", "minilm", "--rate", "5")
