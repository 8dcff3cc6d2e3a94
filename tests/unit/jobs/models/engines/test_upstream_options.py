"""Entries of the models file for models that someone else serves."""

import re
from pathlib import Path

import pytest

from jobs.intake import validation
from jobs.models import models_file
from jobs.models.engines.upstream_options import Concurrency, HttpOptions, OpenAIOptions
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.settings import SettingsError
from tests.support.cases import each


def read(folder: Path, options: str, rest: str = "", engine: str = "http") -> Registry:
    path = folder / "models.toml"
    path.write_text(
        f'[[model]]\nname = "m"\nversion = "1"\nengine = "{engine}"\n{rest}\n'
        f"[model.options]\n{options}\n"
    )
    return models_file.read(path)


def problems(folder: Path, options: str, rest: str = "", engine: str = "http") -> list[str]:
    with pytest.raises(SettingsError) as found:
        read(folder, options, rest, engine)
    where = f"{folder / 'models.toml'}: [[model]] number 1: "
    return [problem.removeprefix(where) for problem in found.value.problems]


URL = 'url = "https://models.example/v1"\n'
CHAT = URL + 'model = "theirs"\n'


def test_limits_follow_from_concurrency_which_is_nearest_to_the_usual(tmp_path: Path) -> None:
    (model,) = read(tmp_path, URL + "concurrency = { max = 48 }")
    assert (model.limits.most_rows, model.limits.in_flight) == (1, 48)
    assert model.effective_task == "any"
    rest = 'task = "embedding"\nlimits = { max_batch = 64, slice_items = 640 }'
    (model,) = read(tmp_path, CHAT, rest, "openai")
    assert (model.limits.most_rows, model.limits.in_flight) == (64, Concurrency().max)
    assert model.limits.slice_items == 640
    assert model.effective_task == "embedding"
    cases = [
        ("{}", Concurrency(1, 4, 32)),
        ("{ max = 2 }", Concurrency(1, 2, 2)),
        ("{ min = 50 }", Concurrency(50, 50, 50)),
        ("{ start = 100 }", Concurrency(1, 100, 100)),
        ("{ min = 2, start = 3, max = 4 }", Concurrency(2, 3, 4)),
    ]
    for (given, meant), case in each(cases):
        with case:
            (model,) = read(tmp_path, URL + f"concurrency = {given}")
            assert HttpOptions(**model.options).concurrency == meant


def test_what_is_wrong_with_an_option_is_said(tmp_path: Path) -> None:
    cases = [
        ("", "options.url is missing: an address"),
        ('url = "ftp://x/"', "options.url: must be an address"),
        ('url = "https://user:pw@x/"', "with no user, password"),
        ('url = "https:///path"', "options.url: must be an address"),
        (URL + 'headers = { Authorization = "Bearer sk-123" }', 'comes from "env:NAME"'),
        (URL + 'headers = { X-Api-Key = "sk-123" }', 'comes from "env:NAME"'),
        (URL + 'headers = { X-A = "a\\nb" }', "printable ASCII"),
        (URL + 'headers = { Host = "x" }', "are set by the engine"),
        (URL + 'body = { text = "input" }', 'be a template with "$input" where the input goes'),
        (URL + 'output = "results/0"', "must be a JSON pointer"),
        (URL + 'output = "/a~2"', "must be a JSON pointer"),
        (URL + 'method = "GET"', "must be 'POST' or 'PUT', not 'GET'"),
        (URL + 'timeout_s = "5"', "options.timeout_s must be a valid number"),
        (URL + "connect_timeout_s = 31", "options: connect_timeout_s must be at most timeout_s"),
        (URL + "concurrency = { min = 5, max = 4 }", "min ≤ start ≤ max"),
        (URL + "concurrency = { most = 4 }", "min ≤ start ≤ max"),
        (URL + "concurrency = 5", "must be a table of whole numbers"),
        (
            URL + "breaker = { failures = 0 }",
            "options.breaker.failures must be greater than or equal to 1, not 0",
        ),
        (URL + 'health = "well"', "must be a path that begins with /"),
        (URL + 'modle = "x"', "unknown key 'modle' in options; there are: url, headers"),
    ]
    for (option, said), case in each(cases):
        with case:
            (problem,) = problems(tmp_path, option)
            assert said in problem
            assert "sk-123" not in problem
    wrong = 'model = ""\napi_key = "sk-1"\nencoding_format = "int8"'
    named = [problem.split()[0].rstrip(":") for problem in problems(tmp_path, wrong, "", "openai")]
    assert named == [f"options.{name}" for name in ("url", "model", "api_key", "encoding_format")]


def test_limits_and_options_fit_together(tmp_path: Path) -> None:
    cases = [
        ("limits = { max_batch = 8 }", "limits.max_batch is 1: a request takes one input"),
        ("limits = { in_flight = 8 }", "options: concurrency.max says how many"),
        ("limits = { max_launch_s = 35 }", "must be less than limits.max_launch_s (35 s)"),
        ('task = "tokens"', "no task 'tokens'; there are: chat, embedding"),
    ]
    for (rest, said), case in each(cases):
        with case:
            assert any(said in problem for problem in problems(tmp_path, CHAT, rest, "openai"))


def test_parameters_are_taken_where_there_is_a_place_for_them_and_tokens_are_guessed() -> None:
    passes = Model("m", "1", "http", options={"body": {"q": "$input", "how": ["$params"]}})
    assert validation.refuse_params(passes, {"any": ["thing"]}) is None
    no = validation.refuse_params(Model("m", "1", "http"), {"lang": "de"})
    assert no == ("unknown_param", "m@1 takes no parameter 'lang'; it takes: none")
    embeds = Model("m", "1", "openai", task="embedding")
    assert validation.refuse_params(embeds, {"dimensions": 256}) is None
    assert validation.refuse_params(embeds, {"dimensions": 0}) is not None
    assert validation.refuse_params(Model("m", "1", "openai"), {"dimensions": 256}) is not None
    cases = [("", 1), ("x" * 400, 100), ([1, 2, 3], 3), ({"messages": [{"content": "x" * 80}]}, 20)]
    for (value, size), case in each(cases):
        with case:
            assert Model("m", "1", "openai").size(value, {}) == size


def test_the_page_has_each_option_with_its_default() -> None:
    page = Path(__file__).parents[5] / "ops/docs/how-to/models/upstreams.md"
    rows = re.findall(r"^\| `(\w+)` \| (both|`\w+`) \| (.*?) \|", page.read_text(), re.MULTILINE)
    for engine, options in (("`http`", HttpOptions), ("`openai`", OpenAIOptions)):
        defaults = {name: default for name, whose, default in rows if whose in ("both", engine)}
        assert defaults.keys() == options.model_fields.keys()
        for name, field in options.model_fields.items():
            if field.default and isinstance(field.default, str | float | int):
                assert defaults[name].strip('`"') == str(field.default).removesuffix(".0")
