"""Trying models out before they are served: what is printed, and what is told to be wrong; and the
examples of ops/docs/how-to/models/models.md as they stand there."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.models import models_file
from jobs.models.model import Limits, Model
from ops.cli import model_check
from ops.cli.model_check import Curve, ModelCheckFailed, ModelReport, Point
from tests.support import signing, thread_clock
from tests.support.command_line import run_millrace
from tests.support.models import custom_models
from workers.engines.flops import count_flops, peak_tflops

pytestmark = pytest.mark.heavy

SLOW = """
from jobs import clock
SAMPLES = ["a", "b", "c"]

def predict(batch):
    clock.sleep(0.020 + 0.005 * len(batch))
    return batch
"""


def check(*arguments: str | Path, status: int = 0) -> str:
    """What `millrace model check` prints."""
    return run_millrace("model", "check", *map(str, arguments), status=status).output


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """20 ms a launch and 5 ms an item; 16 are launched together at most."""
    thread_clock.install(monkeypatch)
    (tmp_path / "slow.py").write_text(SLOW)
    path = tmp_path / "models.toml"
    more = "target_ms = 85\nlimits = { max_batch = 16 }"
    path.write_text(custom_models.entry("slow", "python", more, file="slow.py"))
    return path


def test_the_curve_names_the_best_size_and_the_largest_in_time(slow: Path) -> None:
    tried = model_check.check_model(models_file.load(slow).resolve("slow"), "cpu")
    [curve] = tried.curves
    assert [point.rows for point in curve.points] == [1, 2, 4, 8, 16]
    for point in curve.points:
        assert point.launch_ms >= 20 + 5 * point.rows
        assert point.items_per_s == pytest.approx(1000 * point.rows / point.launch_ms, rel=1e-3)
    assert (curve.best, curve.in_time) == (16, 8)
    assert tried.advice.keys() == {"max_batch", "slice_items"}
    assert tried.advice["max_batch"] == 8
    assert 50 <= tried.advice["slice_items"] <= 200, "at most 133 items a second"


def test_a_module_may_stand_beside_the_models_file(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("def shout(texts): return [t.upper() for t in texts]")
    more = 'options = { function = "beside_it:shout", samples = ["a text"] }'
    (tmp_path / "models.toml").write_text(
        f'[[model]]\nname = "shout"\nversion = "1"\nengine = "function"\n{more}\n'
    )
    said = check("shout", "--file", tmp_path / "models.toml")
    assert 'first of 1 inputs: "A TEXT"' in said
    assert (tmp_path / "models.toml").parent == Path(sys.path[-1])  # it shadows nothing


def test_a_module_that_has_the_name_of_a_package_of_ours_is_named(tmp_path: Path) -> None:
    code = "from jobs import helper\nSAMPLES = ['a']\ndef predict(batch): return helper(batch)\n"
    (tmp_path / "model.py").write_text(code)
    (tmp_path / "jobs.py").write_text("def helper(batch): return batch\n")
    models = tmp_path / "models.toml"
    models.write_text(custom_models.entry("mine", "python", file="model.py"))
    said = check("mine", "--file", models, status=1)
    assert f"{tmp_path / 'jobs.py'} has the name of Millrace's package 'jobs'" in said
    assert "rename it" in said
    (tmp_path / "jobs.py").rename(tmp_path / "my_jobs.py")
    (tmp_path / "model.py").write_text(code.replace("jobs", "my_jobs"))
    check("mine", "--file", models)


def test_a_failure_of_the_device_or_for_want_of_samples_is_told_in_words(slow: Path) -> None:
    fault = 'def predict(batch): raise RuntimeError("CUDA error: unknown error")'
    slow.with_name("slow.py").write_text(f"SAMPLES = ['a']\n{fault}\n")
    with pytest.raises(ModelCheckFailed, match="the device failed: CUDA error: unknown error"):
        model_check.check_model(models_file.load(slow).resolve("slow"), "cpu")
    function = Model("a", "1", "function", options={"function": "builtins:list"})
    with pytest.raises(ModelCheckFailed, match="has no samples"):
        model_check.check_model(function, "cpu")


def test_launches_are_measured_as_many_at_a_time_as_there_will_be(slow: Path) -> None:
    entry = models_file.load(slow).resolve("slow")
    limits = Limits(max_batch=1, in_flight=3)
    model = Model(entry.name, "2", entry.engine, options=entry.options, limits=limits)
    [point] = model_check.check_model(model, "cpu").curves[0].points
    assert point.items_per_s == pytest.approx(3000 / point.launch_ms, rel=1e-3)


def test_what_is_printed_is_the_curve_and_what_to_write(slow: Path) -> None:
    said = check("slow", "--file", slow)
    lines = said.splitlines()
    assert lines[0].startswith("slow@1: loaded in ")
    assert lines[1] == 'first of 3 inputs: "a"'
    table = [line.split() for line in lines if re.match(r" +\d", line)]
    assert [row[0] for row in table] == ["1", "2", "4", "8", "16"]
    assert [len(row[4]) for row in table] == sorted(len(row[4]) for row in table)
    assert table[-1][4] == "#" * 40
    assert "best batch size: 16" in said
    assert "within target_ms = 85: up to 8" in said
    assert any(line.startswith("limits = { max_batch = 8, slice_items = ") for line in lines)


def test_of_models_in_torch_the_share_of_the_peak_is_printed() -> None:
    point = Point(32, 10.0, 3200.0, 247.25)
    curve = Curve(0, [replace(point, rows=1, tflops=9.89), point], 32, 32)
    tried = ModelReport("net@1", 0.0, 0.0, 1, "1", "characters", 20, [curve], {}, device="cpu")
    head, row = [line.split() for line in model_check.lines(tried) if re.match(" +(b|32)", line)]
    assert (head[-1], row[4]) == ("TFLOP/s", "247")
    on_card = replace(tried, peak_tflops=peak_tflops("NVIDIA H200"))
    head, row = [line.split() for line in model_check.lines(on_card) if re.match(" +(b|32)", line)]
    assert (head[-1], row[5]) == ("MFU", "25%")


@pytest.mark.parametrize(
    ("device", "tflops"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA L40", 0),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 0),
        ("NVIDIA GeForce RTX 4090", 0),
        ("cpu", 0),
    ],
)
def test_the_peak_is_that_of_the_cards_data_sheet(device: str, tflops: float) -> None:
    assert peak_tflops(device) == tflops


def test_operations_of_a_launch_are_two_a_multiplication() -> None:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    rows, weights = torch.zeros(8, 100), torch.zeros(100, 50)
    heads = torch.zeros(1, 2, 6, 16)
    with torch.inference_mode():
        assert count_flops(lambda: rows @ weights) == 2 * 8 * 100 * 50
        attention = count_flops(lambda: scaled_dot_product_attention(heads, heads, heads))
    assert attention == 2 * (2 * 2 * 6 * 6 * 16)
    assert count_flops(list) == 0
    assert count_flops(lambda: 1 / 0) == 0, "what can't be counted ends no check"


def test_programs_read_a_line_of_json_a_model_also_of_inputs_of_ones_own(
    own_models: Path, tmp_path: Path
) -> None:
    said = check("embedding", "python", "--file", own_models, "--json")
    first, second = map(json.loads, said.splitlines())
    assert (first["model"], second["model"]) == ("embedding@1", "python@1")
    assert [curve["bucket"] for curve in first["curves"]] == [0]  # launches without padding
    assert first["advice"].keys() == {"max_batch", "max_tokens", "slice_items", "memory_mb"}
    assert second["output"] == '"a!"'
    embeds, calls_python = (each["curves"][0]["points"][-1] for each in (first, second))
    assert embeds["tflops"] > 0 == calls_python["tflops"]
    inputs = tmp_path / "inputs.jsonl"
    inputs.write_text('"a cat"\n\n{"input": "the dog", "custom_id": "x"}\n')
    said = check("torch-text", "--file", own_models, "--input", inputs)
    assert "first of 2 inputs: {" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def predict(batch): return batch", "mine@1 has no samples to try it with: give it some"),
        ("SAMPLES = [1]\ndef predict(batch): return [1/0]", "mine.py:2: ZeroDivisionError"),
        ("SAMPLES = [1]\ndef predict(batch): return [object()]", "on input 1: invalid_output"),
        (
            "SAMPLES = [1, 2]\ndef predict(batch): return [1]",
            "fails on 32 inputs together, though on none alone: 1 outputs",
        ),
        (
            "SAMPLES = [1]\ndef predict(batch):\n    assert len(batch) == 1\n    return batch",
            "fails on 32 inputs together, though on none alone: Permanent: mine.py:3: AssertionErr",
        ),
        ("SAMPLES = [1]\ndef predict(batch): return [float('nan')]", "NaN or an infinity"),
        ("import absent", "mine@1 can't be loaded: Faulty: mine.py:1: ModuleNotFoundError"),
        (
            "SAMPLES = ['a', 'b']\ndef prepare(x):\n    assert x == 'a', 'no'\n    return x\n"
            "def predict(batch): return batch",
            "mine@1 refuses input 2: mine.py:3: AssertionError: no",
        ),
    ],
)
def test_what_is_wrong_with_a_model_is_said(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    (tmp_path / "models.toml").write_text(custom_models.entry("mine", "python", file="mine.py"))
    assert said in check("--file", tmp_path / "models.toml", status=1)
    as_json = check("--file", tmp_path / "models.toml", "--json", status=1)
    assert said in json.loads(as_json)["error"]


def test_one_that_fails_keeps_no_other_from_being_tried(slow: Path) -> None:
    with slow.open("a") as file:
        file.write(custom_models.entry("gone", "python", file="absent.py"))
    said = check("gone", "slow", "--file", slow, status=1)
    assert "problem: gone@1: options.file: there is no file" in said
    assert "slow@1: loaded in" in said


def test_what_is_asked_for_wrongly_is_said(slow: Path, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs.jsonl"
    words = ("--file", slow, "--input", inputs)
    assert "the model 'fast' does not exist here" in check("fast", "--file", slow, status=2)
    inputs.write_text('"a"\n{')
    assert "inputs.jsonl, line 2: not valid" in check(*words, status=1)
    inputs.write_text('\ufeff"a"\n{')
    assert "inputs.jsonl, line 2: not valid" in check(*words, status=1)
    inputs.write_text("\n")
    assert "holds no input" in check(*words, status=1)
    with slow.open("a") as file:
        file.write(custom_models.entry("other", "echo"))
    assert "the name of one model" in check(*words, status=2)
    check("--file", tmp_path / "absent.toml", status=1)


def test_a_target_that_no_launch_keeps_is_said() -> None:
    curve = Curve(0, [Point(1, 30.0, 33.3), Point(2, 31.0, 64.5)], 2, 0)
    tried = ModelReport("slow@1", 0.0, 0.0, 1, "1", "characters", 20, [curve], {})
    lines = "\n".join([*model_check.lines(tried), ""])
    assert "not even one is answered within target_ms = 20\n" in lines


# -- ops/docs/how-to/models/models.md

PAGE = (Path(__file__).parents[4] / "ops/docs/how-to/models/models.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_of_the_page_has_ten_lines_and_works(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text("\n".join(blocks("toml")))
    names = [model.name for model in models_file.load(tmp_path / "models.toml")]
    assert names == ["sentiment", "shout", "net", "exported", "reranker", "assistant"]
    code, entry = blocks("python")[0], blocks("toml")[0]
    assert len([line for line in code.splitlines() if line]) <= 10
    (tmp_path / "sentiment.py").write_text(code)
    (tmp_path / "models.toml").write_text(entry)
    said = check("sentiment", "--file", tmp_path / "models.toml")
    assert 'first of 2 inputs: {"positive":0.7310585786300049}' in said


def test_the_archive_of_the_page_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [export] = [code for code in blocks("python") if "torch.export.save" in code]
    [entry] = [text for text in blocks("toml") if "net.pt2" in text]
    monkeypatch.chdir(tmp_path)
    exec(export, {})
    for name, file in (("export_sha256", "net.pt2"), ("sha256", "net.safetensors")):
        digest = custom_models.digest(tmp_path / file)
        entry = entry.replace(f'\n{name} = "…"', f'\n{name} = "{digest}"')
    (tmp_path / "models.toml").write_text(entry)
    check("--file", tmp_path / "models.toml")


def test_a_signed_folder_is_verified_and_what_was_changed_refused(tmp_path: Path) -> None:
    model = signing.write_tree(tmp_path / "model", {"config.json": b"{}", "a/w.bin": b"1234"})
    key = signing.make_key()
    private = signing.write(tmp_path / "key.pem", signing.private_pem(key))
    trust = signing.write_trust(tmp_path / "trust", key, policy="off")
    verify = ("model", "verify", str(model), "--trust", str(trust))
    run_millrace("model", "sign", str(model), "--key", str(private))
    assert "signed by release" in run_millrace(*verify).output
    (model / "extra.py").write_text("pass\n")
    refused = run_millrace(*verify, status=1)
    assert "extra.py are not in what the key 'release' signed" in refused.output
    _, leaf = signing.Authority.create("root").issue("signer")
    private = signing.write(tmp_path / "key.pem", signing.private_pem(signing.make_key()))
    certificate = signing.write(tmp_path / "leaf.pem", signing.certificate_pem(leaf))
    words = ("--key", str(private), "--certificate", str(certificate))
    refused = run_millrace("model", "sign", str(model), *words, status=1)
    assert "is not the certificate of" in refused.output
