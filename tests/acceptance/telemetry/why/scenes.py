"""Platforms with trouble that is made for real, found as an operator finds it: Prometheus raises an
alert, its page in the runbook names what `why` may say, the dashboard says which of it is the case
and about what, and `millrace why` says the same and what to change.

The rules are those of ops/deploy, in an installation that is 120 times as impatient.
"""

import html
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from jobs.store import db
from ops.processes.ports import free_ports
from ops.supervisor.platform import Platform
from tests.support.clients import bearer, repeated
from tests.support.command_line import run_millrace
from tests.support.keys import make_key
from tests.support.models.entries import function, model
from tests.support.pace import pace
from tests.support.platforms import Platforms, spec
from tests.support.servers.prometheus import firing, hurried, installed, scraping
from tests.support.wait import eventually, pause
from tests.unit.ops.deploy.kit import RULES

UPSTREAM = {"task": "embedding", "model": "m"}
MODELS = (
    function("paced:steady", "saturated", target_ms=1000, limits={"max_batch": 1})
    + model(
        "scattered", "openai", **UPSTREAM, target_ms=100, url="URL/scattered",
        concurrency={"min": 2, "start": 2, "max": 2},
    )
    + function("paced:by_length", "lengthy", target_ms=150)
    + model(
        "crowded", "openai", **UPSTREAM, target_ms=400, url="URL/crowded",
        concurrency={"max": 1}, limits={"max_batch": 2},
    )
    + model("echo", "echo", target_ms=5000)
)  # fmt: skip

TAKES_S = {"/scattered/embeddings": 0.025, "/crowded/embeddings": 0.1}
"""Time of a launch at the upstream, however busy this machine is."""
WINDOW_S = 12.0
FOUND_WITHIN_S = 24.0
IMPATIENT = 120
SOONER = {
    "max(millrace_webhook_oldest_seconds) > 300": "max(millrace_webhook_oldest_seconds) > 2.5"
}
LOOK_S = 0.2
"""Interval of requests for findings: more would keep the api busy by themselves."""
SHORT, LONG = "a few words", "more words than anybody reads, one after the other, " * 60


@dataclass(frozen=True)
class Trouble:
    """Steps of an operator from a finding to its end."""

    alert: str  #: name of the alert
    code: str  #: code of the finding
    about: str  #: start of its subject
    says: tuple[str, ...]  #: parts of its words
    advises: str  #: part of its advice


TROUBLES = {
    "device": Trouble(
        "MillraceTargetBurnsFast", "device_saturated", "model:saturated@1",
        ("% busy", "miss the target of 1 s"), "more workers",
    ),
    "lanes": Trouble(
        "MillraceTargetBurnsFast", "fragmented_lanes", "model:scattered@1",
        ("% busy and p99 rises", "14 lanes", "share 2 launches at a time, mean launch 1."),
        "merge buckets",
    ),
    "long": Trouble(
        "MillraceTargetBurnsFast", "long_texts", "tenant:alice",
        (
            f"alice sends lengthy@1 inputs that are {len(LONG) / len(SHORT):.0f} times as long as "
            f"others' ({len(LONG):,} units against {len(SHORT)})",
            "of the work",
        ),
        "truncate",
    ),
    "hot": Trouble(
        "MillraceTargetBurnsFast", "hot_lane", "model:crowded@1",
        ("of the waiting of its", "a launch of up to 2"), "max_batch",
    ),
    "deaths": Trouble(
        "MillraceWorkersDie", "dying_worker", "worker:", (" deaths", " crashed"), "log",
    ),
    "receiver": Trouble(
        "MillraceWebhooksLate", "slow_webhook_receiver", "webhooks",
        ("a try takes 3", "wait for 127.0.0.1:"), "answer 2xx at once",
    ),
    "lock": Trouble(
        "MillraceDatabaseLocked", "database_stalls", "database",
        ("wait for a lock", "on slices", "holds"), "pg_terminate_backend",
    ),
    "stopped": Trouble(
        "MillraceDatabaseSlow", "database_stalls", "database",
        ("it hasn't answered for",), "its disk",
    ),
}  # fmt: skip


class Scene:
    """A platform with keys of an operator and two tenants. prometheus: None: it isn't installed."""

    def __init__(self, platform: Platform) -> None:
        self.platform, self.keys = platform, {}
        self.prometheus: httpx.Client | None = None
        self.database = db.connect(platform.settings.database_url, pool_size=2)
        for tenant in ("alice", "bob"):
            self.keys[tenant], _ = make_key(self.database, tenant)
        self.keys["operator"], _ = make_key(self.database, "house", role="operator")
        self.as_operator = self.client("operator")
        eventually(lambda: httpx.get(f"{platform.url}/jobs").status_code == 401)

    def client(self, who: str) -> httpx.Client:
        return httpx.Client(base_url=self.platform.url, headers=bearer(self.keys[who]))

    def close(self) -> None:
        self.as_operator.close()
        self.database.dispose()

    def why(self, path: str = "/why") -> list[dict[str, Any]]:
        found = self.as_operator.get(path).raise_for_status().json()["diagnoses"]
        return list(found)

    def by_command(self, *arguments: str, who: str = "operator") -> str:
        environ = {"MILLRACE_URL": self.platform.url, "MILLRACE_API_KEY": self.keys[who]}
        return run_millrace("why", *arguments, **environ).output

    @contextmanager
    def called(
        self, who: str, body: Callable[[int], dict[str, Any]], callers: int, pause_s: float = 0.0
    ) -> Iterator[list[int]]:
        """Runs callers, each with one call after the other. Yields a list that gets the number of
        a caller with each answer."""
        answered: list[int] = []

        def call(n: int) -> None:
            if clients[n].post("/infer", json=body(n)).is_success:
                answered.append(n)
            else:
                pause(0.1)

        with ExitStack() as stack:
            clients = [stack.enter_context(self.client(who)) for _ in range(callers)]
            with repeated(call, callers, pause_s):
                yield answered


@contextmanager
def staged(platforms: Platforms, folder: Path, models: str) -> Iterator[Scene]:
    asked = spec(models, metrics_window_s=WINDOW_S, lease_s=3.0 * pace(), webhook_allow="127.0.0.1")
    with platforms.running(asked, metrics_port=free_ports(8)[0]) as platform:
        made = Scene(platform)
        try:
            with watched(made, folder):
                yield made
        finally:
            made.close()


@contextmanager
def watched(scene: Scene, folder: Path) -> Iterator[None]:
    if not installed():
        yield
        return
    rules = folder / "rules.yml"
    rules.write_text(hurried(RULES, IMPATIENT, SOONER))
    key = scene.keys["operator"]
    with scraping(scene.platform, folder / "prometheus", [rules], key) as scene.prometheus:
        yield


def raised(scene: Scene, trouble: Trouble) -> None:
    """The alert, and the page that it names, which knows what may be the cause."""
    prometheus = scene.prometheus
    if prometheus is None:
        return
    try:
        alert = eventually(lambda: firing(prometheus).get(trouble.alert), FOUND_WITHIN_S)
    except AssertionError as error:
        raise AssertionError(f"{trouble.alert}: {sorted(firing(prometheus))}") from error
    assert alert is not None
    page = (RULES.parents[3] / alert["annotations"]["runbook"]).read_text()
    assert f"`{trouble.code}`" in page


def on_the_dashboard(scene: Scene, code: str) -> str:
    """Words of a finding on the dashboard, in lower case at first; "" where it isn't there."""
    page = scene.as_operator.get("/dashboard").raise_for_status().text
    for part in page.split('<div class="diagnosis')[1:]:
        if f"<code>{code}</code>" in part:
            words = re.search(r"<strong>(.*?)</strong>", part)
            assert words
            said = html.unescape(re.sub(r"<[^>]*>", "", words[1])).rstrip(".")
            return said[0].lower() + said[1:]
    return ""


def explained(scene: Scene, trouble: Trouble, *companions: str) -> dict[str, Any]:
    """Goes from the alert to the cause; returns the finding once the api, the dashboard and the
    command agree on it. companions: codes of critical findings that may stand beside it."""
    raised(scene, trouble)

    def agreed() -> dict[str, Any] | None:
        found = [one for one in scene.why() if one["code"] == trouble.code]
        found = [one for one in found if one["about"].startswith(trouble.about)]
        one = next((one for one in found if all(w in one["words"] for w in trouble.says)), None)
        shown, said = on_the_dashboard(scene, trouble.code), scene.by_command()
        is_told = one and (
            all(words in shown for words in trouble.says)
            and f"{trouble.code} ({one['about']}): {one['words'][:20]}" in said
            and f"→ {one['advice']}" in said
        )
        return one if is_told else None

    try:
        found = eventually(agreed, FOUND_WITHIN_S, LOOK_S)
    except AssertionError as error:
        raise AssertionError(f"{trouble}: {json.dumps(scene.why(), indent=1)}") from error
    assert found is not None
    assert trouble.advises in found["advice"]
    others = [one for one in scene.why() if one["severity"] == "critical"]
    assert {one["code"] for one in others} <= {trouble.code, *companions}
    return found
