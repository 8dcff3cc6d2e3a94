"""Kubernetes' API as far as a scaler asks it: scales of workloads, annotations of pods, and what
may go wrong. Speaks JSON as that does: a scale of 0 is left out, errors are of the kind Status."""

import json
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.servers.receiver import Received, Reply, receiving

_SCALE = re.compile(r"/apis/apps/v1/namespaces/([^/]+)/(deployments|statefulsets)/([^/]+)/scale")
_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)")
_REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict"}


@dataclass
class Scale:
    replicas: int = 0
    version: int = 1

    def set(self, replicas: int) -> None:
        self.replicas = replicas
        self.version += 1


@dataclass
class KubernetesApi:
    """State of a cluster, and what it refuses. Workloads by namespace/kind/name, as in settings."""

    url: str = ""
    scales: dict[str, Scale] = field(default_factory=dict)
    pods: dict[str, dict[str, str]] = field(default_factory=dict)  #: annotations, by name
    tokens: set[str] = field(default_factory=lambda: {"first"})  #: that are accepted
    failing: int = 0  #: status that all answers have; 0: none
    hanging: bool = False  #: True: nothing is answered
    may_patch_pods: bool = True
    changed_between: int = 0  #: patches before which another writes
    patches: list[tuple[str, int]] = field(default_factory=list)  #: scales that were set
    reads: int = 0
    content_types: set[str] = field(default_factory=set)  #: of patches

    def kubeconfig(self, folder: Path, token: str = "first") -> Path:
        """Writes a configuration of kubectl whose token is in a file; returns its path."""
        (folder / "token").write_text(token)
        named = {"cluster": "c", "user": "u"}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"tokenFile": str(folder / "token")}}],
            "contexts": [{"name": "x", "context": named}],
        }  # fmt: skip
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def answer(self, method: str, path: str, token: str, body: Any) -> tuple[int, dict[str, Any]]:
        if self.failing:
            return self._status(self.failing, "it was told to fail")
        if token not in self.tokens:
            return self._status(401, "Unauthorized")
        if match := _SCALE.fullmatch(path):
            namespace, kind, name = match.groups()
            return self._scale(method, f"{namespace}/{kind[:-1]}/{name}", body)
        if (match := _POD.fullmatch(path)) and method == "PATCH":
            return self._annotate(match[2], body)
        return self._status(404, f"the server could not find {path}")

    def _scale(self, method: str, key: str, body: Any) -> tuple[int, dict[str, Any]]:
        if (scale := self.scales.get(key)) is None:
            return self._status(404, f'"{key}" not found')
        if method == "GET":
            self.reads += 1
        else:
            if self.changed_between:
                self.changed_between -= 1
                scale.set(scale.replicas)
            if body["metadata"]["resourceVersion"] != str(scale.version):
                return self._status(409, "the object has been modified")
            scale.set(body["spec"]["replicas"])
            self.patches.append((key, scale.replicas))
        spec = {"replicas": scale.replicas} if scale.replicas else {}
        namespace, _, name = key.split("/")
        metadata = {"name": name, "namespace": namespace, "resourceVersion": str(scale.version)}
        kind = {"kind": "Scale", "apiVersion": "autoscaling/v1"}
        return 200, {**kind, "metadata": metadata, "spec": spec, "status": {"replicas": 0}}

    def _annotate(self, name: str, body: Any) -> tuple[int, dict[str, Any]]:
        if not self.may_patch_pods:
            return self._status(403, f'pods "{name}" is forbidden: cannot patch resource "pods"')
        if name not in self.pods:
            return self._status(404, f'pods "{name}" not found')
        self.pods[name] |= body["metadata"]["annotations"]
        return 200, {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}}

    def _status(self, code: int, message: str) -> tuple[int, dict[str, Any]]:
        reason = _REASONS.get(code, "InternalError")
        kind = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
        return code, {**kind, "message": message, "reason": reason, "code": code}


@contextmanager
def running(tls: ssl.SSLContext | None = None) -> Iterator[KubernetesApi]:
    api = KubernetesApi()

    def reply(request: Received) -> Reply | None:
        if api.hanging:
            receiver.over.wait()
            return None
        body = None
        if request.method == "PATCH":
            api.content_types.add(request.headers["content-type"])
            body = json.loads(request.body)
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        held = token if kind.lower() == "bearer" else ""
        status, answer = api.answer(request.method, request.path.partition("?")[0], held, body)
        return Reply(status, {"Content-Type": "application/json"}, json.dumps(answer).encode())

    with receiving(tls) as receiver:
        receiver.reply = reply
        api.url = receiver.origin
        yield api
