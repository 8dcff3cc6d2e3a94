"""Processes that prepare large calls: what they return, and how they end."""

import asyncio
import base64
import os
import signal
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from api.compat.oip import infer as oip
from api.compat.oip.wire import Wanted
from api.compat.openai import embeddings
from api.gateway.routing.target import Asker, ReadyVersions, Target
from api.routes import calls
from api.services.call_preparation import CallPreparation
from jobs.errors import Invalid, TooLarge, Unavailable
from jobs.models.builtin_models import SAMPLES
from jobs.models.registry import Registry
from jobs.models.routing.table import RoutingTable
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings

Run = Callable[..., Any]
NONE = ReadyVersions(RoutingTable(), Asker("t"), frozenset())


def die(models: Registry) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(models: Registry) -> None:
    raise ZeroDivisionError("by nothing")


def process(models: Registry) -> int:
    return os.getpid()


@pytest.fixture(scope="module")
def prepared() -> Iterator[Run]:
    """Runs a function of the api in another process."""
    made = CallPreparation(Settings(), ModelsFile(None))
    yield lambda *call: asyncio.run(made.run("t", *call))
    made.stop()


def body(**fields: Any) -> bytes:
    return orjson.dumps(fields)


def test_a_call_is_checked_and_sized_in_another_process(prepared: Run) -> None:
    raw = body(model="echo", input=["x"] * 30_000, timeout_ms=7, **{"class": "bulk"})
    found = prepared(calls.prepare, raw, NONE)
    assert orjson.loads(found.value) == ["x"] * 30_000
    assert (found.timeout_ms, found.job_class) == (7, "bulk")
    [plan] = found.plans
    assert plan.model == SAMPLES.resolve("echo")
    assert prepared(process) != os.getpid()


def test_a_bare_name_is_routed_there(prepared: Run) -> None:
    routing = RoutingTable({("echo", "best"): "1"})
    ready = ReadyVersions(routing, Asker("t", "ann"), frozenset({"echo@1"}))
    found = prepared(calls.prepare, body(model="echo", input="x"), ready)
    [plan] = found.plans
    assert (plan.model.key, found.target.model) == ("echo@1", SAMPLES.resolve("echo"))


def test_a_list_of_texts_is_tokenized_in_another_process(prepared: Run) -> None:
    raw = body(model="minilm", input=["one two three"] * 900, encoding_format="base64")
    asked, inputs = prepared(embeddings.prepare, raw, NONE)
    assert (asked.input, asked.encoding_format) == (None, "base64")
    assert inputs.values == [b'"one two three"'] * 900
    assert {plan.size for plan in inputs.plans} == {5}


def test_tensors_are_read_in_another_process(prepared: Run) -> None:
    text = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["x" * 100_000]}
    raw = body(inputs=[text])
    target = Target(SAMPLES.resolve("echo"))
    asked, inputs = prepared(oip.prepare, target, raw, len(raw))
    assert (asked.rows, asked.inputs) == (1, {})
    assert inputs.values == [b'"%b"' % (b"x" * 100_000)]


def test_large_outputs_are_read_in_another_process(prepared: Run) -> None:
    vector = orjson.dumps([0.5] * 30_000)
    encoded = orjson.loads(prepared(embeddings.encode_base64, vector).decode())
    assert struct.unpack("<30000f", base64.b64decode(encoded)) == (0.5,) * 30_000
    text = orjson.dumps("x" * 100_000)
    parts = SAMPLES.resolve("echo"), {"id": "a"}, [text], [Wanted("output", True)], "gzip"
    found, headers = prepared(oip.write_response, *parts)
    assert headers["Content-Encoding"] == "gzip"
    assert zlib.decompress(found, 31).endswith(b"x" * 100_000)


def test_what_is_wrong_is_said_with_its_place(prepared: Run) -> None:
    long = body(model="echo", input="x" * 300_000)
    with pytest.raises(Invalid) as caught:
        prepared(calls.prepare, long, NONE)
    assert [fault.loc for fault in caught.value.faults] == [("input",)]
    longer = body(model="echo", input="x" * 3_000_000)
    with pytest.raises(TooLarge):
        prepared(calls.prepare, longer, NONE)


def test_a_process_that_ends_or_errs_costs_its_call_alone(prepared: Run) -> None:
    with pytest.raises(Unavailable, match="killed"):
        prepared(die)
    with pytest.raises(RuntimeError, match="by nothing"):
        prepared(fail)
    assert prepared(process)
