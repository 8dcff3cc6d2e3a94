"""Forms of the playground as bodies of POST /infer, and the same calls as code that runs."""

import ast
import shlex
from io import BytesIO
from typing import Any

import orjson
import pytest

from api.dashboard.forms import call_code, trial
from api.dashboard.forms.examples import IMAGE, example_input
from api.http.multipart import Form
from jobs.errors import Invalid
from jobs.intake import validation
from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Model

URL = "http://here:8000"
CHAT = Model("talk", "1", "echo_chat")
NASTY = 'it\'s "quoted" $HOME `id`\n{{ 7*7 }}'


def body(model: Model, raw: bytes = b"", **fields: str) -> dict[str, Any]:
    return trial.body_of(model, model.name, Form(BytesIO(raw), "a.jpg" if raw else "", fields))


def test_a_text_and_its_parameters_or_json_in_place_of_every_other_form() -> None:
    found = body(SAMPLES.resolve("minilm"), text="a\r\nb", params='{"truncate": 64}')
    assert found == {"model": "minilm", "input": "a\nb", "params": {"truncate": 64}}
    for model in SAMPLES:
        assert body(model, kind="json", json='{"a": 1}')["input"] == {"a": 1}


def test_a_conversation_goes_on() -> None:
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    found = body(
        CHAT, kind="chat", system="be brief", message=" and now? ", temperature="0.5",
        max_tokens="20", stream="1", history=orjson.dumps(history).decode(),
    )  # fmt: skip
    first, last = {"role": "system", "content": "be brief"}, {"role": "user", "content": "and now?"}
    value = {"messages": [first, *history, last], "temperature": 0.5, "max_tokens": 20}
    assert found == {"model": "talk", "input": value, "stream": True}
    assert not validation.refuse_input(CHAT, found["input"])


def test_an_image_is_sent_in_base64_and_tensors_in_the_shapes_of_their_fields() -> None:
    model = SAMPLES.resolve("efficientnet-lite0")
    assert body(model, b"\xff\xd8\xff", kind="image")["input"] == "/9j/"
    model, fields = SAMPLES.resolve("simple"), {}
    for n in range(2):
        fields |= {f"shape-{n}": "1, 16", f"data-{n}": str([list(range(16))])}
    found = body(model, **fields)["input"]
    assert not validation.refuse_input(model, found)
    assert len(found["inputs"]) == 2


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (SAMPLES.resolve("minilm"), {"kind": "json", "json": "{"}),
        (SAMPLES.resolve("minilm"), {"text": "a", "params": "{"}),
        (SAMPLES.resolve("efficientnet-lite0"), {}),
        (SAMPLES.resolve("simple"), {"shape-0": "1, x", "data-0": "[]"}),
        (SAMPLES.resolve("simple"), {"shape-0": "1, 16", "data-0": "["}),
        (CHAT, {"message": ""}),
        (CHAT, {"message": "a", "temperature": "hot"}),
        (CHAT, {"message": "a", "history": "{}"}),
    ],
)
def test_what_is_wrong_is_said(model: Model, fields: dict[str, str]) -> None:
    with pytest.raises(Invalid) as found:
        body(model, **fields)
    assert found.value.faults


def test_every_model_takes_its_example() -> None:
    for model in SAMPLES:
        example = example_input(model)
        large = isinstance(example, dict) and b'"data":[]' in orjson.dumps(example)
        if example != IMAGE and not large:
            assert not validation.refuse_input(model, example), model.key


TALK = {"messages": [{"role": "user", "content": NASTY}]}


@pytest.mark.parametrize(
    "call",
    [
        {"input": NASTY},
        {"input": NASTY, "params": {"a": NASTY}},
        {"input": TALK},
        {"input": {**TALK, "max_tokens": 3}, "stream": True},
    ],
)
def test_the_code_says_the_same_whatever_is_in_it(call: dict[str, Any]) -> None:
    call = {"model": "talk", **call}
    words = shlex.split(call_code.curl(URL, call).replace("\\\n", " "))
    assert orjson.loads(words[words.index("-d") + 1]) == call
    tree = ast.parse(call_code.python(URL, call))
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    [value] = [node.value for node in assigned if ast.unparse(node.targets[0]) == "value"]
    assert ast.literal_eval(value) == call["input"]


def test_the_code_of_an_image_reads_a_file() -> None:
    call = {"model": "efficientnet-lite0", "input": IMAGE, "params": {"top_k": 1}}
    shell = call_code.curl(URL, call)
    begun = shlex.split(shell)[2].removesuffix(";")
    end = shell.partition("echo '")[2].partition("'")[0]
    assert orjson.loads(f"{begun}AAAA{end}") == {**call, "input": "AAAA"}
    assert "picture.jpg" in call_code.python(URL, call)
    ast.parse(call_code.python(URL, call))
