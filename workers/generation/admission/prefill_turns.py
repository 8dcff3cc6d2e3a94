"""Order in which prompts are computed: in turns of tenants, by tokens of prompts and weight.

A long prompt takes many steps. First come, first served, a tenant whose long prompts came a moment
earlier would make everybody wait for all of them. Each prompt is ordered by the tokens by weight
that its tenant will have had once it is computed (finish times of weighted fair queueing; Demers,
Keshav and Shenker, 1989): a short prompt goes before long ones that are half computed, whose tenant
still gets its share.
"""

from collections.abc import Iterable, Mapping, Sequence

from workers.generation.requests import Sequenced

Prompts = Mapping[Sequenced, int]
"""Calls with tokens to compute, in the order of their arrival."""


def cut(prompts: Sequence[Sequenced], most: int) -> int:
    """Returns the tokens of prompts for a step, at most so many: those that it completes, where the
    rest would lengthen it for a call of another tenant that isn't complete then either."""
    taken = 0
    for n, one in enumerate(prompts):
        if taken + one.to_prefill > most:
            others = any(first.request.tenant != one.request.tenant for first in prompts[:n])
            return taken if others and one.request.is_call else most
        taken += one.to_prefill
    return most


class PrefillTurns:
    """Tokens of prompts of calls that tenants were served, by weight."""

    def __init__(self) -> None:
        self._served: dict[str, float] = {}

    def order(self, running: Iterable[Sequenced]) -> list[Sequenced]:
        """Returns the sequences with a prompt to compute: calls in the order of their turns, then
        items as they came. A tenant that comes back is lifted to the least served one: it saved
        nothing up meanwhile."""
        pending = [one for one in running if one.to_prefill]
        calls = {one: one.to_prefill for one in pending if one.request.is_call}
        self._lift({one.request.tenant for one in calls})
        finishes = self._finishes(calls)
        items = [one for one in pending if not one.request.is_call]
        return [*sorted(calls, key=lambda one: finishes[one]), *items]

    def serve(self, sequence: Sequenced, tokens: int) -> None:
        """Counts tokens of a prompt that were computed."""
        request = sequence.request
        if not request.is_call:
            return
        served = self._served.get(request.tenant, 0.0)
        self._served[request.tenant] = served + tokens / request.weight

    def ahead(self, prompts: Prompts, tokens: int, tenant: str = "") -> int:
        """Returns the tokens that are computed before the prompt of a new call. tokens: of this
        prompt; tenant: whose call it is; "": a tenant without any prompt now."""
        finishes = self._finishes(prompts)
        own = [one for one in prompts if one.request.tenant == tenant]
        start = max((finishes[one] for one in own), default=self._least(prompts))
        finish = start + tokens / (own[0].request.weight if own else 1.0)
        return sum(left for one, left in prompts.items() if finishes[one] <= finish)

    def _finishes(self, prompts: Prompts) -> dict[Sequenced, float]:
        """Returns the tokens by weight that tenants will have had at the end of each prompt."""
        least, served = self._least(prompts), dict(self._served)
        finishes = {}
        for one in prompts:
            request = one.request
            finish = served.get(request.tenant, least)
            if one.leads:  # other choices find its prompt in the cache
                finish += prompts[one] / request.weight
            served[request.tenant] = finishes[one] = finish
        return finishes

    def _lift(self, waiting: set[str]) -> None:
        least = self._least_of(waiting)
        ahead = {tenant: served for tenant, served in self._served.items() if served > least}
        self._served = {tenant: ahead.get(tenant, least) for tenant in (*ahead, *waiting)}
        if not waiting:
            self._served.clear()

    def _least(self, prompts: Prompts) -> float:
        return self._least_of({one.request.tenant for one in prompts})

    def _least_of(self, tenants: set[str]) -> float:
        known = (self._served[tenant] for tenant in tenants if tenant in self._served)
        return min(known, default=0.0)
