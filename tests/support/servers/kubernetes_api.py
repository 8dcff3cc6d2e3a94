"""Kubernetes' API as far as a scaler asks it: scales of workloads, annotations of pods, and what
may go wrong. Speaks JSON as that does: a scale of 0 is left out, errors are of the kind Status."""

import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_SCALE = re.compile(r"/apis/apps/v1/namespaces/([^/]+)/(deployments|statefulsets)/([^/]+)/scale")
_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)")
_REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict"}


@dataclass
class Scale:
    """Scale of one workload."""

    replicas: int = 0
    version: int = 1

    def set(self, replicas: int) -> None:
        """Sets it, by whoever it is."""
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
    released: threading.Event = field(default_factory=threading.Event)  #: ends what hangs

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
        """Returns status and body."""
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
    """Serves on loopback."""
    api = KubernetesApi()

    class Handler(BaseHTTPRequestHandler):
        """Reads requests."""

        def do_GET(self) -> None:
            """Reads a scale."""
            self._answer(None)

        def do_PATCH(self) -> None:
            """Sets a scale, or annotates a pod."""
            api.content_types.add(self.headers["Content-Type"])
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Any) -> None:
            if api.hanging:
                api.released.wait()
                return
            kind, _, token = self.headers.get("Authorization", "").partition(" ")
            path = self.path.partition("?")[0]
            held = token if kind.lower() == "bearer" else ""
            status, answer = api.answer(self.command, path, held, body)
            sent = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, format: str, *args: object) -> None:
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield api
    finally:
        api.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
