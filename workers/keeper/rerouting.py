"""Slices of routed jobs that wait for a version which was retired, rolled back or taken off its
route, or which no worker can load: they go over to the version that a new job would get. Slices of
any job that wait to be prepared for a model that isn't `prepare = "pool"` any more go on to it."""

from dataclasses import replace

from sqlalchemy import Engine as Database

from jobs.models.model import Model
from jobs.models.registered import Registered, union
from jobs.models.registry import Registry
from jobs.models.watcher import ModelsFile
from jobs.store.queue import reroute
from jobs.store.queue.reroute import RoutedJobs
from jobs.store.tenancy import EVERYBODY, acting
from jobs.telemetry.metrics import record
from jobs.usecases.slice_versions import first_stage, lasting
from workers.service import Service

_EVERY_S = 30.0  # between two looks, where the registry doesn't change


class Rerouting(Service):
    """Keeper service: looks at each change of the registry, and now and then: an api that knew of
    it later may have cut a job, and leases end."""

    def __init__(self, models: ModelsFile, database: Database) -> None:
        super().__init__("reroute slices", _EVERY_S)
        self._models, self._database = models, database

    def adopt(self, registered: Registered) -> bool:
        """Takes over what the registry holds, and looks if that has changed."""
        changed = self._models.adopt(registered)
        if changed:
            self.wake.set()
        return changed

    def run_once(self) -> int:
        """Moves some slices; returns their number. Raises database errors."""
        with record.keeper_run(self.name):
            known = self._models.models
            with acting(self._database, EVERYBODY) as tx:
                found = reroute.open_jobs(tx)
            moved = sum(self._skip_preparation(known, model) for model in known)
            if not found:
                return moved
            active = union(self._models.declared, replace(self._models.registered, unfinished=()))
            return moved + sum(self._move(known, active, each) for each in found)

    def _skip_preparation(self, known: Registry, model: Model) -> int:
        if not model.spec.pooled or model.prepare == "pool":
            return 0
        with acting(self._database, EVERYBODY) as tx:
            return reroute.skip_preparation(tx, model, known.pools())

    def _move(self, known: Registry, active: Registry, its: RoutedJobs) -> int:
        """known: all that workers may hold; active: what takes new jobs."""
        model = known.get(f"{its.model}@{its.version}")
        if model is None:
            return 0  # what its items were checked for isn't known any more
        to, models = lasting(active.of_tenant(its.tenant_id), model, its.tenant_id)
        with acting(self._database, EVERYBODY) as tx:
            keys = {f"{model.served_by.name}@{one.version}": one for one in models}
            bad = reroute.unloadable(tx, keys) if len(keys) > 1 else set[str]()
            lost = [keys[key] for key in bad]
            if to is None or to in lost:
                return 0
            stages = {stage.version for one in models if one not in lost for stage in one.stages}
            return reroute.move(tx, its, first_stage(to), stages, known.pools())
