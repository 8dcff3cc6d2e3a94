"""Adapters of a host's model, as models of their own: their jobs are claimed and billed by name."""

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.models.model import AdaptedModel, Model
from workers.device.claim_capacity import ClaimCapacity
from workers.device.host import Host
from workers.engines.protocol import Transient
from workers.items.in_flight import InFlightSlice


class AdapterHost:
    """One adapter of a host, for claims. It shares the host's room, launches and steps."""

    def __init__(self, base: Host, model: AdaptedModel) -> None:
        self.model: Model = model
        self._base, self._name = base, model.adapter_name
        self.capacity: ClaimCapacity = base.capacity

    def submit(
        self,
        owners: Sequence[InFlightSlice],
        seqs: Sequence[int],
        inputs: Sequence[Any],
        params: Mapping[str, Any],
        parts: Sequence[int] = (),
    ) -> None:
        """Queues inputs of slices, for this adapter."""
        adapter = self._base.adapters[self._name]  # with its files where they are staged
        self._base.submit(owners, seqs, inputs, params, parts, adapter)

    def release(self, in_flight: InFlightSlice) -> None:
        """Takes back the items of a slice that have not been launched."""
        self._base.release(in_flight)

    def drain(self) -> None:
        """Drains its host."""
        self._base.drain()


def unknown_adapter(name: str) -> Transient:
    """Returns the error of a call whose adapter the worker doesn't know."""
    return Transient(
        f"this worker has no adapter {name!r}: its models file is an older one; try again"
    )
