"""Kubernetes' API as far as it is needed: scales of workloads, and costs of pods' deletion.

Loads the official client, which takes a second.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import orjson
import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException

from workers.keeper.scaling.actuators.protocol import ActuatorError
from workers.scaler.actuator import Conflict
from workers.scaler.workloads import Workload

T = TypeVar("T")

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation of pods: those with the least go first when a Deployment shrinks."""

_TIMEOUT_S = 5.0  # of a connection, and of an answer
_MANAGER = "millrace-scaler"  # owner of the fields that it sets
_MERGE = "application/merge-patch+json"
_SHOWN = 300  # characters of what the API wrote
_WHY = {
    401: "the API takes this process's token for expired or revoked",
    403: "this process may not: its ServiceAccount needs the Role of scaler/scaler.yaml, for pods "
    "that of examples/pod-costs.yaml, in ops/deploy/kubernetes",
    404: "there is none: MILLRACE_SCALE_WORKLOADS names it",
}


class Cluster:
    """Client of one cluster: of the pod that this process runs in, else of KUBECONFIG."""

    def __init__(self, timeout_s: float = _TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._connect()

    def read_scale(self, workload: Workload) -> tuple[int, str]:
        """Returns the replicas that a workload is to have, and the version of that number. Raises
        ActuatorError."""
        scale = self._call(f"reading the scale of {workload}", self._read, workload)
        return scale.spec.replicas or 0, scale.metadata.resource_version  # 0 is left out in JSON

    def set_scale(self, workload: Workload, replicas: int, version: str) -> None:
        """Sets the number of replicas. Raises Conflict where it isn't that version any more, and
        ActuatorError."""
        body = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
        self._call(f"setting the scale of {workload}", self._patch, workload, body)

    def set_deletion_cost(self, namespace: str, pod: str, cost: int) -> None:
        """Sets the cost of a pod's deletion; one that is gone is left. Raises ActuatorError."""
        body = {"metadata": {"annotations": {DELETION_COST: str(cost)}}}
        self._call(f"setting {DELETION_COST} of pod/{pod} in {namespace}", self._annotate,
                   namespace, pod, body)  # fmt: skip

    def _connect(self) -> None:
        configuration = client.Configuration()
        try:
            if os.environ.get("KUBERNETES_SERVICE_HOST"):
                config.load_incluster_config(configuration)
            else:
                named = os.environ.get("KUBECONFIG")
                config.load_kube_config(named, client_configuration=configuration)
        except ConfigException as error:
            raise ActuatorError(
                f"no way to a cluster is known: {error}; run it in a pod with a ServiceAccount, or "
                "set KUBECONFIG"
            ) from error
        configuration.retries = False  # what failed is tried again at the next look
        api = client.ApiClient(configuration)
        self._apps, self._core = client.AppsV1Api(api), client.CoreV1Api(api)

    def _read(self, workload: Workload) -> Any:
        read = {
            "deployment": self._apps.read_namespaced_deployment_scale,
            "statefulset": self._apps.read_namespaced_stateful_set_scale,
        }[workload.kind]
        return read(workload.name, workload.namespace, _request_timeout=self._timeout_s)

    def _patch(self, workload: Workload, body: dict[str, Any]) -> None:
        patch = {
            "deployment": self._apps.patch_namespaced_deployment_scale,
            "statefulset": self._apps.patch_namespaced_stateful_set_scale,
        }[workload.kind]
        patch(workload.name, workload.namespace, body, field_manager=_MANAGER,
              _content_type=_MERGE, _request_timeout=self._timeout_s)  # fmt: skip

    def _annotate(self, namespace: str, pod: str, body: dict[str, Any]) -> None:
        try:
            self._core.patch_namespaced_pod(
                pod, namespace, body, field_manager=_MANAGER, _content_type=_MERGE,
                _request_timeout=self._timeout_s,
            )  # fmt: skip
        except ApiException as error:
            if error.status != 404:
                raise

    def _call(self, what: str, act: Callable[..., T], *arguments: Any) -> T:
        """Calls the API, a second time with a token that is read anew where it was refused."""
        try:
            try:
                return act(*arguments)
            except ApiException as error:
                if error.status != 401:
                    raise
                self._connect()
                return act(*arguments)
        except ApiException as error:
            if error.status == 409:
                raise Conflict from error
            raise ActuatorError(f"{what} failed: {_described(error)}") from error
        except urllib3.exceptions.HTTPError as error:
            raise ActuatorError(f"{what} failed: the API doesn't answer: {error}") from error


def _described(error: ApiException) -> str:
    """Describes an answer in the API's own words, and how to mend it."""
    try:
        message = str(orjson.loads(error.body or b"")["message"])
    except (ValueError, TypeError, LookupError):
        message = str(error.reason or "")
    words = [f"{error.status}", _WHY.get(error.status, ""), message[:_SHOWN]]
    return ": ".join(filter(None, words))
