"""Router: from the name that a request has to the version that answers it."""

from collections.abc import Sequence

from fastapi import Request

from api.gateway.model_status import ModelStatuses
from api.gateway.response_cache import ResponseCache
from api.gateway.routing.target import Asker, ReadyVersions, Target, targets
from jobs.models.registry import Registry
from jobs.telemetry.metrics import routing as metrics


class Router:
    """Routes calls by the routes of this moment; without any, a bare name is the newest version
    with a ready worker. Calls under an Idempotency-Key stay with the version that first took
    them."""

    def __init__(self, statuses: ModelStatuses, responses: ResponseCache) -> None:
        self._statuses, self._responses = statuses, responses

    async def route(
        self,
        models: Registry,
        name: str,
        request: Request,
        tenant: str,
        *,
        key: str | None = None,
        user: object = "",
    ) -> Target:
        """Returns where a call goes. key: see Asker; user: the one that its body names. Raises
        UnknownModel."""
        if not models.routed and not key:
            versions = models.versions(name)
            several = len(versions) > 1
            return Target(await self._statuses.choose(versions) if several else versions[0])
        asker = (await self._asker(request, tenant, key)).named(user)
        target = await self._first_ready(targets(models, models.routing, name, asker))
        self.record(target, asker)
        return target

    async def ready_versions(
        self, models: Registry, request: Request, tenant: str, *, key: str | None = None
    ) -> ReadyVersions:
        """Returns what it takes to route a call whose body is read in a child process."""
        ready = await self._statuses.ready_keys(models)
        return ReadyVersions(models.routing, await self._asker(request, tenant, key), ready)

    def record(self, target: Target, asker: Asker) -> None:
        """Keeps the version under the call's Idempotency-Key. Counts a target that stands for a
        version without a ready worker, and has that loaded where it is loaded on demand."""
        if asker.key and not asker.was_at(target):
            self._responses.keep_version(asker.tenant, asker.key, target.taken)
        if target.missed:
            metrics.fell_back(target.missed.key)
            self._statuses.want(target.missed)

    async def _asker(self, request: Request, tenant: str, key: str | None) -> Asker:
        taken = await self._responses.version(tenant, key) if key else ""
        return Asker.read(request, tenant, key, taken)

    async def _first_ready(self, found: Sequence[Target]) -> Target:
        if len(found) > 1:
            for target in found:
                if (await self._statuses.get(target.model)).ready:
                    return target
        return found[-1]
