"""A fleet of the newest release becomes one of this code, process by process, and goes back, while
jobs, calls and streams go on."""

from pathlib import Path

import pytest

from jobs.store.monitoring import invariants
from tests.support.children import answers
from tests.support.platforms import no_durability
from tests.support.stores.transactions import connected, scalars
from tests.support.upgrade import release
from tests.support.upgrade.balancer import Balancer
from tests.support.upgrade.fleet import Fleet, origin, ready_workers, serving
from tests.support.upgrade.traffic import FILES, MODELS, Traffic
from tests.support.wait import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[3]
KINDS = ("api", "keeper", "worker", "worker")


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """The code of the newest release."""
    try:
        commit = release.newest(ROOT)
    except release.NoHistory as reason:
        pytest.skip(f"the newest release can't be checked out: {reason}")
    code = tmp_path / "release"
    release.check_out(ROOT, commit, code)
    assert Path(origin(code)).is_relative_to(code)
    assert Path(origin(ROOT)).is_relative_to(ROOT)
    return code


class Upgrade:
    """Replaces processes, and lets the traffic go on with each mixture of them."""

    def __init__(self, fleet: Fleet, balancer: Balancer, traffic: Traffic) -> None:
        self.fleet, self.balancer, self.traffic = fleet, balancer, traffic

    def replace(self, kind: str, code: Path) -> None:
        """Replaces the oldest process of a kind by one of that code."""
        if kind == "api":
            self.start_api(code)
            self.traffic.goes_on()
            old = self.fleet.running["api"][0].name
            self.balancer.leave(old)
            self.traffic.open_stream()
            self.fleet.drain("api")
            self.traffic.urls.remove(old)
        elif kind == "worker":
            self.start_worker(code)
            self.fleet.drain("worker")
        else:
            self.fleet.start(code, kind)
            self.fleet.drain(kind)
        self.traffic.goes_on()
        self.fleet.check()

    def start_api(self, code: Path) -> str:
        """Starts an api, and takes it into service once it answers calls."""
        url = self.fleet.start(code, "api").name
        eventually(lambda: answers(url, "/livez"))
        self.balancer.enter(url)
        self.traffic.urls.append(url)
        return url

    def start_worker(self, code: Path) -> None:
        """Starts a worker; returns once it is ready."""
        self.fleet.start(code, "worker")
        url, count = self.traffic.urls[-1], len(self.fleet.running["worker"])
        eventually(lambda: ready_workers(url) == count)


def test_a_fleet_is_upgraded_and_taken_back_with_work_in_flight(
    released: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "models.toml").write_text(MODELS)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    balancer = Balancer()
    traffic = Traffic(balancer)
    with no_durability(), serving(folder / "home", folder / "models.toml") as fleet:
        upgrade = Upgrade(fleet, balancer, traffic)
        fleet.migrate(released)
        old = upgrade.start_api(released)
        fleet.start(released, "keeper")
        upgrade.start_worker(released)
        upgrade.start_worker(released)
        with traffic.flowing():
            traffic.goes_on()
            held = traffic.hold()
            fleet.migrate(ROOT)
            if (released / "migrations" / "schema.py").exists():  # as of the release after 0.2.0
                eventually(lambda: answers(old))
            for kind in KINDS:
                upgrade.replace(kind, ROOT)
            unready_s = balancer.unready_s
            traffic.let_go(*held)
            held = traffic.hold()
            for kind in KINDS:
                upgrade.replace(kind, released)
            traffic.let_go(*held)
        assert traffic.failures == []
        with connected(fleet.settings.database_url) as database:
            states = scalars(database, "SELECT state FROM jobs")
            assert states == ["completed"] * len(traffic.jobs)
            with invariants.snapshot(database) as tx:
                for each in invariants.INVARIANTS:
                    assert list(invariants.violations(tx, each)) == [], each
    refused = f"{balancer.refused} refusals, {unready_s:.1f} s without an api that was ready"
    print(f"\n{dict(traffic.counts)}, {refused}")
