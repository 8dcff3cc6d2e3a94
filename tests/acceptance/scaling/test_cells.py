"""Two whole platforms behind nginx, and a tenant that moves from one to the other."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from jobs import ids
from jobs.api_keys import key_hint
from ops.processes.ports import free_port
from ops.router.cells import Cells, Placement
from ops.router.nginx import configuration
from ops.supervisor.platform import Platform
from tests.support.clients import bearer as headers
from tests.support.clients import repeated
from tests.support.command_line import run_millrace
from tests.support.keys import make_key_at
from tests.support.models.paced import STEADY
from tests.support.pace import pace
from tests.support.platforms import Platforms, spec
from tests.support.servers import nginx
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

needs_nginx = pytest.mark.skipif(
    not nginx.installed(), reason="nginx isn't installed: apt-get install nginx"
)
SECRET = "a key that both cells have, 32 characters or more"
TENANT = "acme"


@pytest.fixture(scope="module")
def cells(platforms: Platforms) -> Iterator[list[Platform]]:
    cell = spec(STEADY, is_closed=True, lease_s=3.0 * pace())
    with ExitStack() as stack:
        yield [stack.enter_context(platforms.running(cell, secret_key=SECRET)) for _ in range(2)]


def admin(platform: Platform, *arguments: str, input: bytes = b"") -> str:
    settings = platform.settings
    environ = {"MILLRACE_DATABASE_URL": settings.database_url, "MILLRACE_SECRET_KEY": SECRET}
    return run_millrace(*arguments, input=input, **environ).output


def move(cells: list[Platform]) -> None:
    """A moved tenant has in the second cell all that it had in the first."""
    exported = admin(cells[0], "tenant-export", TENANT)
    admin(cells[1], "tenant-import", "-", input=exported.encode())


def test_an_exported_tenant_is_let_in_by_the_other_cell(cells: list[Platform]) -> None:
    admin(cells[0], "tenant", "moved", "--weight", "3")
    boss, _ = make_key_at(cells[0].settings.database_url, "ops", role="admin")
    at = ("--url", cells[0].url, "--api-key", boss)
    admin(cells[0], "limits", "moved", "--model", "steady", "--queued-items", "50", *at)
    key, _ = make_key_at(cells[0].settings.database_url, "moved")

    def submit(cell: Platform) -> httpx.Response:
        body, named = {"model": "steady", "items": ["a"]}, {"Idempotency-Key": '"again"'}
        return httpx.post(f"{cell.url}/jobs", json=body, headers=headers(key, **named))

    first = submit(cells[0])
    assert first.status_code == 202
    for _ in range(2):
        exported = admin(cells[0], "tenant-export", "moved")
        assert key not in exported
        admin(cells[1], "tenant-import", "-", input=exported.encode())
    again = submit(cells[1])
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    told = json.loads(admin(cells[1], "tenant", "moved", "--json"))
    assert told["weight"] == 3
    boss, _ = make_key_at(cells[1].settings.database_url, "ops", role="admin")
    limits = admin(cells[1], "limits", "moved", "--json", "--url", cells[1].url, "--api-key", boss)
    assert '"queued_items": 50' in limits
    run_millrace(
        "tenant-import", "-", input=exported.replace('"moved"', '"other"', 1).encode(), status=1,
        MILLRACE_DATABASE_URL=cells[1].settings.database_url, MILLRACE_SECRET_KEY=SECRET,
    )  # fmt: skip


@needs_nginx
def test_a_tenant_moves_under_load_and_loses_no_job(cells: list[Platform], tmp_path: Path) -> None:
    port = free_port()
    key, _ = make_key_at(cells[0].settings.database_url, TENANT)
    other, _ = make_key_at(cells[0].settings.database_url, "stays")
    url = f"http://127.0.0.1:{port}"
    router = nginx.Nginx(tmp_path)

    def place(**placement: object) -> None:
        tenants = {TENANT: Placement(keys=(key_hint(key),), **placement)}
        urls = {"one": cells[0].url, "two": cells[1].url}
        declared = Cells(default="one", cells=urls, tenants=tenants)
        router.serve(configuration(declared, f"127.0.0.1:{port}"))

    accepted: list[str] = []

    def submit(_: int) -> int:
        named = {"Idempotency-Key": f'"job-{len(accepted)}"'}
        asked = {"model": "steady", "items": [f"item {len(accepted)}"]}
        answer = http.post("/jobs", json=asked, headers=named)
        if answer.status_code == 202:
            accepted.append(answer.json()["id"])
        return answer.status_code

    with closing(router), httpx.Client(base_url=url, headers=headers(key)) as http:
        place(cell="one")
        with repeated(submit, callers=1) as statuses:
            eventually(lambda: len(accepted) >= 5)
            place(cell="one", paused=True)
            eventually(lambda: 503 in statuses)
            move(cells)
            place(cell="two", before="one")
            before = len(accepted)
            eventually(lambda: len(accepted) >= before + 5)
        assert set(statuses) == {202, 503}
        assert len(set(accepted)) == len(accepted)
        listed = httpx.get(f"{cells[1].url}/jobs?limit=100", headers=headers(key)).json()["data"]
        assert {job["id"] for job in listed} < set(accepted)  # some in each cell
        for n, job in enumerate(accepted):
            one = f"/jobs/{job}"
            eventually(lambda one=one: http.get(one).json()["state"] == "completed")
            assert http.get(f"{one}/results").json()["output"] == f"item {n}"
        nobodys = ids.show("job", ids.new())
        assert http.get(f"/jobs/{nobodys}").status_code == 404
        stays = {"model": "steady", "input": "x"}
        answer = httpx.post(f"{url}/infer", json=stays, headers=headers(other))
        assert answer.status_code == 200
