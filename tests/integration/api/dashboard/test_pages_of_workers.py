"""Workers, as pages and the API show their GPUs and what they cost."""

from typing import Any

import pytest
import redis

from jobs.telemetry.gpu_reading import KEY as GPU
from jobs.telemetry.gpu_reading import GpuReading
from jobs.telemetry.reports.reports import KEY, Report
from jobs.telemetry.reports.window import WindowDelta
from tests.integration.api.conftest import People
from tests.support.stores.transactions import execute
from tests.support.wait import eventually

READING = GpuReading(
    seconds=5.0,
    sm_activity=0.9,
    kernel_activity=1.0,
    power_w=560.4,
    power_limit_w=700.0,
    temperature_c=67,
    throttling=("hw_thermal_slowdown",),
    ecc_uncorrected=2,
    xids={79: 1},
)
SM = ("millrace_device_active_seconds_total", (("device", "cuda"), ("kind", "sm")))


def report(client: "redis.Redis", worker: int, reading: GpuReading | None, **more: Any) -> None:
    """Reports a worker whose SMs were active for 23 of 60 s."""
    gpu = reading.as_json() if reading else None
    about = {GPU: gpu, "device": "cuda", "price": 2.5, **more}
    at = float(client.time()[0])
    delta = WindowDelta(60.0, {SM: 23.0}, {})
    client.hset(KEY, str(worker), Report(str(worker), "worker", at, delta, about).pack())


def test_pages_show_the_last_minute_of_a_gpu_and_what_is_wrong_with_it(
    people: People, worker: int, redis_client: "redis.Redis"
) -> None:
    report(redis_client, worker, READING)
    path = f"/workers/{worker}"
    page = eventually(lambda: "SMs active" in (it := people.page("operator", path)) and it)
    for shown in ("38 %", "560 <small>W", "of 700 W", "67 <small>°C", "time with a launch"):
        assert shown in page, shown
    told = "throttled: hw thermal slowdown; 2 uncorrected memory errors; Xid 79"
    assert f"Its GPU: {told}" in page
    listed = people.page("operator", "/workers")
    for shown in ("SMs active 38 %, 560 W", *told.split("; ")):
        assert shown in listed, shown
    [found] = people.ask("operator", "/workers").json()["data"]
    assert found["gpu"] == {
        "sm_activity": 0.9,
        "kernel_activity": 1.0,
        "power_w": 560.4,
        "power_limit_w": 700.0,
        "temperature_c": 67,
        "throttling": ["hw_thermal_slowdown"],
        "ecc_uncorrected": 2,
        "xids": {"79": 1},
    }


@pytest.mark.parametrize("reading", [None, GpuReading(seconds=5.0)], ids=["cpu", "nothing told"])
def test_nothing_is_shown_of_a_gpu_that_is_not_there_or_tells_nothing(
    people: People, worker: int, redis_client: "redis.Redis", reading: GpuReading | None
) -> None:
    report(redis_client, worker, reading)
    eventually(lambda: "price 2.5" in people.page("operator", f"/workers/{worker}"))
    for path in ("/workers", f"/workers/{worker}"):
        page = people.page("operator", path)
        for hidden in ("SMs active", "Kernel running", "Power", "Temperature", "Its GPU", " W<"):
            assert hidden not in page, (path, hidden)


def test_the_cost_of_a_million_items_is_for_operators(
    people: People, worker: int, redis_client: "redis.Redis"
) -> None:
    execute(
        people.database,
        "INSERT INTO usage (tenant_id, kind, model, version, class, succeeded, failed, units, "
        "device_us, input_tokens, cached_tokens, output_tokens, amount) "
        "VALUES ('acme', 'calls', 'echo', '1', 'standard', 1000, 0, 0, 1440000, 0, 0, 0, 0)",
    )
    about = {"price": 2.5, "models": {"echo@1": {"state": "ready"}}}
    report(redis_client, worker, None, **about)
    query = {"by": "model", "tenant": "acme"}
    cost = {"device_cost_per_million": {"least": 1.0, "most": 1.0}}
    [group] = eventually(
        lambda: (
            "device_cost" in str(it := people.ask("operator", "/usage", **query).json()["data"])
            and it
        )
    )
    assert cost.items() <= group.items()
    assert "Device cost of a million" in people.page("operator", "/tenants/acme")
    [own] = people.ask("acme", "/usage", by="model").json()["data"]
    assert "device_cost_per_million" not in own
    assert "Device cost" not in people.page("acme", "/tenants/acme")
