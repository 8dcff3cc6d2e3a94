"""lm-evaluation-harness, in an environment of its own, scores a model that is served as it does by
its backend `hf` from the same weights. It reaches nothing but the platform."""

import json
import os
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ops.supervisor.platform import Platform
from tests.compatibility.environments import ENVIRONMENTS, HERE
from tests.support.generation import tiny_llama
from tests.support.platforms import Platforms, spec
from tests.support.wait import PATIENCE_S

HARNESS = ENVIRONMENTS["lm-eval"]
pytestmark = pytest.mark.skipif(bool(HARNESS.missing), reason=HARNESS.missing)

WATER = [
    ("A millrace leads water to a", ["mill", "cat", "bakery in Köln"], 0),
    ("Three cats and two dogs are", ["five animals", "猫", "seven apples"], 0),
    ("The opposite of warm is", ["cold", "bread"], 0),
]
SUMS = [
    (f"{a} apples and {b} apples make", [f"{n} apples" for n in range(a + b - 1, a + b + 3)], 1)
    for a, b in ((2, 3), (1, 7), (4, 4), (5, 2))
]
TASK = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list:
  - metric: acc
  - metric: acc_norm
"""


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama.save(tmp_path_factory.mktemp("tiny"), max_position_embeddings=2048)


@pytest.fixture(scope="module")
def platform(platforms: Platforms, weights: Path) -> Iterator[Platform]:
    with platforms.running(spec(tiny_llama.entry(weights, name="smollm2"))) as running:
        yield running


def evaluated(folder: Path, backend: str, **given: Any) -> Any:
    """Returns what the harness finds by a backend."""
    given["ours"] = sysconfig.get_paths()["purelib"]  # torch and transformers, for its own backend
    (folder / f"{backend}.args.json").write_text(json.dumps(given))
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    proxy = "http://127.0.0.1:9"  # which isn't there
    nowhere = {"HTTPS_PROXY": proxy, "HTTP_PROXY": proxy, "NO_PROXY": "127.0.0.1,localhost"}
    subprocess.run(
        [HARNESS.python, HERE / "evaluation.py", folder, backend],
        cwd=folder, env={**os.environ, **offline, **nowhere}, timeout=3 * PATIENCE_S, check=True,
    )  # fmt: skip
    return json.loads((folder / f"{backend}.json").read_text())


def test_it_finds_what_it_finds_by_its_own_backend(
    platform: Platform, weights: Path, tmp_path: Path
) -> None:
    for name, rows in (("water", WATER), ("sums", SUMS)):
        data = tmp_path / f"{name}.jsonl"
        names = ("question", "choices", "answer")
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
        data.write_text("\n".join(lines))
        (tmp_path / f"{name}.yaml").write_text(TASK.format(name=name, data=data))
    own = evaluated(tmp_path, "hf", pretrained=str(weights), dtype="float32", device="cpu")
    ours = evaluated(
        tmp_path, "local-completions", model="smollm2", tokenizer=str(weights),
        base_url=f"{platform.url}/v1/completions", tokenizer_backend="huggingface",
    )  # fmt: skip
    assert ours["scores"].keys() == {"water", "sums"}
    for name, expected in own["scores"].items():
        for one, by_weights in zip(ours["scores"][name], expected, strict=True):
            assert [is_greedy for _, is_greedy in one] == [is_greedy for _, is_greedy in by_weights]
            logprobs = [logprob for logprob, _ in by_weights]
            assert all(logprobs)
            assert [logprob for logprob, _ in one] == pytest.approx(logprobs, abs=1e-3)
        for metric in ("acc,none", "acc_norm,none"):
            assert ours["results"][name][metric] == own["results"][name][metric]
