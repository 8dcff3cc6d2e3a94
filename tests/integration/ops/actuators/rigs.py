"""Actuators with those who ask them, and what they act on: one shape for all, so that one suite
runs over them. Of each there are two that could act."""

import os
import signal
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from redis import Redis
from sqlalchemy import Engine

from jobs.models.watcher import ModelsFile
from jobs.scaling.policy import Policy
from jobs.settings import Settings
from jobs.store.scaling import policies as store
from jobs.store.tenancy import EVERYBODY, acting
from jobs.usecases import scaling
from ops.processes.children import Child, Supervisor
from ops.supervisor.local_workers import LocalWorkers
from ops.supervisor.scaling import ScalingFollower
from tests.support.servers.kubernetes_api import KubernetesApi, Scale
from tests.support.wait import PATIENCE_S
from workers.keeper.scaling.actuators import command
from workers.keeper.scaling.controller import PoolController
from workers.scaler.actuator import KubernetesActuator
from workers.scaler.cluster import Cluster
from workers.scaler.scaler import Scaler
from workers.scaler.workloads import Workload

POOL = "default"
WORKLOAD = Workload("millrace", "deployment", "worker")


class Rig(Protocol):
    """One kind of actuator."""

    def look(self, of: int = 0) -> None:
        """Lets one of the two that could act look once."""

    def close(self, of: int = 0) -> None:
        """Ends one of them."""

    def replicas(self) -> int:
        """Returns the replicas that there are."""

    def deeds(self) -> int:
        """Returns how often something was done about them."""

    def disturb(self) -> None:
        """Changes the number of replicas behind its back."""

    def break_(self) -> None:
        """Lets what it does fail, until `mend`."""

    def mend(self) -> None:
        """Lets it work again."""


class PlanRig:
    """Keepers, whose decisions nobody carries out."""

    def __init__(self, keepers: Sequence[PoolController], desired: Callable[[], int]) -> None:
        self._keepers, self.replicas = keepers, desired

    def look(self, of: int = 0) -> None:
        self._keepers[of].run_once()

    def close(self, of: int = 0) -> None:
        self._keepers[of].close()

    def deeds(self) -> int:
        return 0


class CommandRig(PlanRig):
    """Keepers that run a program, which writes the number down."""

    def __init__(self, keepers: Sequence[PoolController], folder: Path) -> None:
        names = "number", "broken", "runs"
        self._number, self._broken, self._runs = (folder / name for name in names)
        super().__init__(keepers, lambda: int(self._number.read_text()))
        self._number.write_text("0")
        self._runs.write_text("")

    @staticmethod
    def program(folder: Path) -> str:
        """Writes the program; returns its path."""
        return program(
            folder,
            f"cd {folder}; echo $1 >> runs; if test -e broken; then echo no quota >&2; exit 3; fi; "
            'echo "$2" > number',
        )

    def deeds(self) -> int:
        return len(self._runs.read_text().split())

    def disturb(self) -> None:
        self._number.write_text("7")
        command.AGAIN_S = 0.0  # the fixture restores it

    def break_(self) -> None:
        self._broken.touch()

    def mend(self) -> None:
        self._broken.unlink()


class Workers:
    """Workers of a supervisor: processes that end at SIGTERM, or don't."""

    def __init__(
        self, command: str = "exec sleep 999", log: Path | None = None, grace_s: float = 30.0
    ) -> None:
        self.supervisor, self._command, self._log = Supervisor(), command, log
        self.local = LocalWorkers(self.supervisor, POOL, [], self._new, 5, grace_s=grace_s)
        self.started = 0

    def _new(self, place: int) -> Child:
        self.started += 1
        return Child(f"worker-{place}", ["/bin/sh", "-c", self._command], log=self._log)

    @property
    def alive(self) -> list[str]:
        return sorted(child.name for child in self.supervisor.children if child.alive())

    def has_retired(self) -> bool:
        self.supervisor.poll()
        return not self.supervisor.retiring


class LocalRig:
    """Two supervisors with workers of their own, each as `millrace up` is one."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._logs = folder / "logs"
        self._workers = [Workers(log=self._logs / f"{n}.log") for n in range(2)]
        self._followers = [ScalingFollower(settings, POOL) for _ in range(2)]

    def look(self, of: int = 0) -> None:
        self._followers[of].look()
        self._followers[of].act(self._workers[of].local)
        self._followers[of].look()  # writes down what failed
        self._workers[of].supervisor.poll()

    def close(self, of: int = 0) -> None:
        self._followers[of].stop()
        self._workers[of].supervisor.stop(0.0)
        self._workers[of].supervisor.children.clear()

    def replicas(self) -> int:
        return sum(len(each.alive) + len(each.supervisor.retiring) for each in self._workers)

    def deeds(self) -> int:
        return sum(each.started + len(each.supervisor.retiring) for each in self._workers)

    def disturb(self) -> None:
        [child, *_] = self._workers[0].supervisor.children
        os.kill(child.pid, signal.SIGKILL)
        child.process.wait()

    def break_(self) -> None:
        self._logs.rename(self._logs.with_name("kept"))
        self._logs.write_text("no folder")

    def mend(self) -> None:
        self._logs.unlink()
        self._logs.with_name("kept").rename(self._logs)


class KubernetesRig:
    """Two scalers of a cluster."""

    def __init__(self, settings: Settings, database: Engine, api: KubernetesApi) -> None:
        self._api, self._scale = api, api.scales.setdefault("millrace/deployment/worker", Scale())
        cluster = Cluster(PATIENCE_S)
        self._scalers = [
            Scaler(settings, database, lambda: KubernetesActuator(cluster, {POOL: WORKLOAD}))
            for _ in range(2)
        ]

    def look(self, of: int = 0) -> None:
        self._scalers[of].look()

    def close(self, of: int = 0) -> None:
        self._scalers[of].close()

    def replicas(self) -> int:
        return self._scale.replicas

    def deeds(self) -> int:
        return len(self._api.patches)

    def disturb(self) -> None:
        self._scale.set(7)

    def break_(self) -> None:
        self._api.failing = 500

    def mend(self) -> None:
        self._api.failing = 0


class Stage:
    """A pool with a policy, and all that could act on it."""

    def __init__(
        self, database: Engine, keeper: Engine, settings: Settings, client: Redis,
        folder: Path, api: KubernetesApi,
    ) -> None:  # fmt: skip
        self._database = database
        its = settings.evolve(scale_command=CommandRig.program(folder))
        keepers = [PoolController(its, client, ModelsFile(None), keeper) for _ in range(2)]
        self.rigs: dict[str, Rig] = {
            "plan": PlanRig(keepers, lambda: self.desired),
            "command": CommandRig(keepers, folder),
            "local": LocalRig(its, folder),
            "kubernetes": KubernetesRig(its, keeper, api),
        }

    def close(self) -> None:
        for rig in self.rigs.values():
            for of in range(2):
                rig.close(of)

    def give(self, actuator: str) -> Rig:
        """Gives the pool to an actuator, with no replicas."""
        with acting(self._database, EVERYBODY) as tx:
            policy = Policy(min_replicas=0, max_replicas=9, actuator=actuator)
            scaling.set_policy(tx, POOL, policy, "key_1")
        self.decide(0)
        return self.rigs[actuator]

    def decide(self, replicas: int) -> None:
        """Decides on a number, by a person's word."""
        with acting(self._database, EVERYBODY) as tx:
            scaling.pause(tx, POOL, "key_1", "", replicas)

    @property
    def desired(self) -> int:
        with acting(self._database, EVERYBODY) as tx:
            return store.get(tx, POOL).desired

    @property
    def failures(self) -> list[str]:
        """Reasons of the events `failed`, the oldest first."""
        with acting(self._database, EVERYBODY) as tx:
            events = store.events(tx, POOL)
        return [one.reason for one in reversed(events) if one.act == "failed"]


def program(folder: Path, text: str) -> str:
    file = folder / "scale"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)
