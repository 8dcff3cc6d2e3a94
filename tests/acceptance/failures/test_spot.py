"""Spot workers beside one that stays: machines are reclaimed with and without notice, and nothing
is lost. Real processes, which are killed."""

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.children import until
from tests.support.clients import infer
from tests.support.jobs import assert_outputs, completed, finish, scalar_of
from tests.support.pace import lease_s
from tests.support.platforms import spec, transaction
from tests.support.servers.metadata_service import metadata_service
from tests.support.spot_workers import SpotWorker, spot_worker
from tests.support.wait import eventually, gone

PLATFORM = spec(lease_s=lease_s(2.0))
ITEMS = 12_000  # more than one worker claims at a time
_WORKERS = text("""
    SELECT DISTINCT s.worker FROM slices s JOIN jobs j ON j.id = s.job_id
    WHERE j.class = :class AND s.worker > 0
""")


def submit(client: Client, job_class: str = "standard", items: int = ITEMS) -> str:
    texts = [f"item {n}" for n in range(items)]
    return client.jobs.submit("batchstring", texts, **{"class": job_class}).id


def await_results(platform: Platform, client: Client, job: str, items: int = ITEMS) -> None:
    """Waits for the end of a job, whose results are each there once and in order."""
    found = finish(platform, client, job)
    assert_outputs(found, [f"ITEM {n}" for n in range(items)])
    assert {line["attempts"] for line in found} <= {1, None}


def events(client: Client) -> list[Any]:
    found = client.get("/admin/pools/default")["events"]
    return [one for one in found if one["act"] == "reclaimed"]


def attempts(platform: Platform, job: str) -> int:
    return int(scalar_of(platform, job, "SELECT count(*) FROM attempts WHERE job_id = :job"))


def workers_of(platform: Platform, job_class: str) -> set[int]:
    with transaction(platform) as tx:
        return set(tx.scalars(_WORKERS, {"class": job_class}))


def job_in_hand(client: Client, spot: SpotWorker) -> str:
    """A job of which the spot worker has a part; another one, where others had it all."""
    jobs = [submit(client)]

    def look() -> bool:
        if completed(client, jobs[-1]):
            jobs.append(submit(client))
        return leased(spot)

    eventually(look)
    return jobs[-1]


def leased(spot: SpotWorker) -> bool:
    query = "SELECT count(*) FROM slices WHERE state = 'leased' AND lease_owner = :id"
    with transaction(spot.platform) as tx:
        return bool(tx.scalar(text(query), {"id": spot.incarnation}))


def test_a_file_gives_notice_and_work_in_hand_goes_elsewhere_at_no_cost(
    platform: Platform, client: Client, tmp_path: Path
) -> None:
    with spot_worker(platform, tmp_path) as spot:
        job = job_in_hand(client, spot)
        pid = spot.pid
        spot.reclaim()
        eventually(lambda: gone(pid))
        assert (spot.row.state, spot.row.reclaimed_by, spot.row.died) == ("stopped", "file", None)
        assert not leased(spot)
        assert spot.process.poll() is None  # its supervisor starts no other
        await_results(platform, client, job)
        assert attempts(platform, job) == 0
        [event] = [one for one in events(client) if one["actor"] == f"worker {spot.incarnation}"]
        assert event["reason"].endswith("goes in 30 s, by file")
        shown = client.get(f"/workers/{spot.incarnation}")
        assert (shown["spot_notice_s"], shown["reclaimed_by"]) == (30, "file")
        page = httpx.get(f"{platform.url}/dashboard/workers").text
        assert "reclaimed by file" in page


@pytest.mark.nightly
def test_jobs_that_stay_are_run_by_others_until_nobody_else_is_left(
    platform: Platform, client: Client, http: httpx.Client, tmp_path: Path
) -> None:
    with spot_worker(platform, tmp_path) as spot:
        jobs = [submit(client, job_class) for job_class in ("interactive", "bulk")]
        for job in jobs:
            await_results(platform, client, job)
        assert spot.incarnation not in workers_of(platform, "interactive")
        assert spot.incarnation in workers_of(platform, "bulk")
        [other] = staying(client)
        client.request("POST", f"/workers/{other}/drain")
        try:
            jobs.append(submit(client, "interactive", 200))

            def spot_takes_part() -> bool:
                if completed(client, jobs[-1]):  # before the drain was seen
                    jobs.append(submit(client, "interactive", 200))
                return spot.incarnation in workers_of(platform, "interactive")

            eventually(spot_takes_part)
            call = partial(infer, http, "batchstring", "a", **{"class": "interactive"})
            answer = eventually(lambda: (one := call()).is_success and one.json())
            assert answer["output"] == "A"
            await_results(platform, client, jobs[-1], 200)
        finally:
            client.request("POST", f"/workers/{other}/undrain")
            until(platform, lambda: staying(client))


def staying(client: Client) -> list[int]:
    """Workers that are ready, and not spot."""
    found = client.get("/workers")["data"]
    return [one["id"] for one in found if one["state"] == "ready" and not one["spot_notice_s"]]


def test_a_provider_gives_notice(platform: Platform, client: Client, tmp_path: Path) -> None:
    with metadata_service() as service:
        asked = {"spot_provider": "azure", "spot_metadata_url": service.url}
        with spot_worker(platform, tmp_path, **asked) as spot:
            pid = spot.pid
            eventually(lambda: len(service.asked) > 2)
            service.reclaim(20.0)
            eventually(lambda: gone(pid))
            assert (spot.row.state, spot.row.reclaimed_by) == ("stopped", "azure")


def test_sigterm_is_a_notice(platform: Platform, client: Client, tmp_path: Path) -> None:
    with spot_worker(platform, tmp_path) as spot:
        job = job_in_hand(client, spot)
        os.kill(spot.process.pid, signal.SIGTERM)
        assert spot.process.wait() == 0
        assert (spot.row.state, spot.row.reclaimed_by) == ("stopped", "sigterm")
        await_results(platform, client, job)
        assert attempts(platform, job) == 0


def test_a_machine_that_vanishes_loses_nothing_and_why_tells_of_it(
    platform: Platform, client: Client, tmp_path: Path
) -> None:
    with spot_worker(platform, tmp_path) as spot:
        job = job_in_hand(client, spot)
        spot.vanish()
        await_results(platform, client, job)
        eventually(lambda: spot.row.reclaimed_by == "silence")
        assert events(client)[0]["reason"].endswith("fell silent, without notice")
        eventually(
            lambda: any(
                one["code"] == "spot_reclaimed" and "without notice" in one["words"]
                for one in client.get("/why")["diagnoses"]
            )
        )
