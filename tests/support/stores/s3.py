"""An S3 on loopback: moto's, with faults before it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET = "millrace-test"

Fault = Callable[[str, str, str], str | None]
"""Of a request's method, path and key id: the code of the error that it is answered, "break" for a
connection that breaks in the middle of its body, None for no fault."""

_STATUS = {"SlowDown": "503 Slow Down", "InvalidAccessKeyId": "403 Forbidden"}


class S3:
    """endpoint: its URL; client: a plain one, with a bucket. fault: asked of each request."""

    def __init__(self) -> None:
        self.fault: Fault = lambda method, path, key_id: None
        self.asked: list[tuple[str, str]] = []
        self._app = DomainDispatcherApplication(create_backend_app)
        self.server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"

    def start(self) -> None:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.client = boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1")
        self.client.create_bucket(Bucket=BUCKET)

    def stop(self) -> None:
        self.client.close()
        self.server.shutdown()
        self.server.server_close()

    def put(self, key: str, body: bytes) -> str:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=body)
        return f"s3://{BUCKET}/{key}"

    def get(self, url: str) -> bytes:
        body: bytes = self.client.get_object(Bucket=BUCKET, Key=self._key(url))["Body"].read()
        return body

    def head(self, url: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.head_object(Bucket=BUCKET, Key=self._key(url))
        return found

    def keys(self, prefix: str = "") -> list[str]:
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return [entry["Key"] for entry in found.get("Contents", ())]

    def _key(self, url: str) -> str:
        return url.removeprefix(f"s3://{BUCKET}/")

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.asked.append((method, path))
        key_id = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition("/")[0]
        code = self.fault(method, path, key_id)
        if code is None:
            return self._app(environ, start_response)
        if code == "break":
            environ["wsgi.input"].read(10)
            environ["werkzeug.socket"].shutdown(2)
            return []
        body = f"<Error><Code>{code}</Code><Message>as the test asks</Message></Error>".encode()
        length = ("Content-Length", str(len(body)))
        start_response(_STATUS[code], [("Content-Type", "application/xml"), length])
        return [body]


@contextmanager
def serving() -> Iterator[S3]:
    """Starts one, with credentials for it in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.delenv("AWS_PROFILE", raising=False)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        server = S3()
        server.start()
        try:
            yield server
        finally:
            server.stop()


def times(count: int, code: str, method: str) -> Fault:
    """The first so many requests of that method go wrong."""
    left = iter(range(count))

    def fault(asked: str, path: str, key_id: str) -> str | None:
        return code if asked == method and next(left, None) is not None else None

    return fault
