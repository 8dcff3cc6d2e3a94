"""Processes that prepare large calls: what they return, and how they end."""

import asyncio
import base64
import os
import signal
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from fastapi import Request
from starlette.requests import ClientDisconnect

from api.compat.oip import infer as oip
from api.compat.oip.wire import Wanted
from api.compat.openai import embeddings
from api.gateway.routing.target import Asker, ReadyVersions, Target
from api.routes import calls
from api.services.call_preparation import CallPreparation, end_after
from jobs.errors import DeadlinePassed, Invalid, TooLarge, Unavailable
from jobs.models.builtin_models import SAMPLES
from jobs.models.registry import Registry
from jobs.models.routing.table import RoutingTable
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from tests.support.wait import eventually_async

Run = Callable[..., Any]
NONE = ReadyVersions(RoutingTable(), Asker("t"), frozenset())


def die(models: Registry) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(models: Registry) -> None:
    raise ZeroDivisionError("by nothing")


def process(models: Registry) -> int:
    return os.getpid()


def work_for_ever(models: Registry, begun: Path, timeout_ms: int = 3_600_000) -> None:
    end_after(timeout_ms)
    begun.write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)


def request(left: asyncio.Event) -> Request:
    """A request whose client leaves at an event."""

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http"}, receive)


@pytest.fixture(scope="module")
def preparation() -> Iterator[CallPreparation]:
    made = CallPreparation(Settings(), ModelsFile(None))
    yield made
    made.stop()


@pytest.fixture
def prepared(preparation: CallPreparation) -> Run:
    """Runs a function of the api in another process."""

    async def run(*call: Any) -> Any:
        return await preparation.run(request(asyncio.Event()), "t", *call)

    return lambda *call: asyncio.run(run(*call))


def body(**fields: Any) -> bytes:
    return orjson.dumps(fields)


def test_a_call_is_checked_and_sized_in_another_process(prepared: Run) -> None:
    raw = body(model="echo", input=["x"] * 30_000, timeout_ms=60_000, **{"class": "bulk"})
    found = prepared(calls.prepare, raw, NONE)
    assert orjson.loads(found.value) == ["x"] * 30_000
    assert (found.timeout_ms, found.job_class) == (60_000, "bulk")
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


def test_a_deadline_ends_a_preparation_and_frees_its_process(prepared: Run, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with pytest.raises(DeadlinePassed):
        prepared(work_for_ever, begun, 2000)
    if begun.exists():  # else the machine was slow
        assert prepared(process) == int(begun.read_text())


@pytest.mark.anyio
async def test_a_client_that_leaves_frees_its_process_and_its_turn(
    preparation: CallPreparation, tmp_path: Path
) -> None:
    left = [asyncio.Event() for _ in range(3)]
    begun = [tmp_path / str(n) for n in range(3)]
    calls = [
        asyncio.create_task(preparation.run(request(left[n]), "t", work_for_ever, begun[n]))
        for n in range(3)
    ]
    await eventually_async(lambda: begun[0].exists() and begun[1].exists())
    left[2].set()  # it waits: a tenant has two places
    with pytest.raises(ClientDisconnect):
        await calls[2]
    assert not begun[2].exists()
    for n in (0, 1):
        left[n].set()
        with pytest.raises(ClientDisconnect):
            await calls[n]
    pid = await preparation.run(request(asyncio.Event()), "t", process)
    assert str(pid) in (begun[0].read_text(), begun[1].read_text())
