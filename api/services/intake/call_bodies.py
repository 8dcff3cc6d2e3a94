"""Bodies of calls, which are read into memory: bounded over all requests of a process, and by
tenant."""

from collections import Counter

from fastapi import Request
from starlette.types import Scope

from api.http import bodies
from jobs.errors import Overloaded

HELD = "millrace.held"  #: In a request's scope: its tenant, and the bytes that it holds.
_RETRY_S = 1.0


class CallBodies:
    """Memory (bytes) for the bodies over 64 KiB of one api process, each until its response.

    A tenant may have no more than it leaves free: alone it gets half. Every method runs on the
    event loop.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = self._free = max_bytes
        self._held: Counter[str] = Counter()

    async def read(self, request: Request, max_bytes: int, tenant: str) -> bytes:
        """Returns the whole body. Raises TooLarge, Overloaded, ClientDisconnect."""
        bodies.check_declared(request, max_bytes)
        body, more = await bodies.receive(request)
        if not more and len(body) <= min(max_bytes, bodies.LIGHT_BYTES):  # nearly always
            return body
        chunks, size, chunk = [body], 0, body
        while True:
            size += len(chunk)
            if size > max_bytes:
                raise bodies.too_large(max_bytes)
            if size > bodies.LIGHT_BYTES:
                self.hold(request.scope, tenant, len(chunk))
            if not more:
                return b"".join(chunks)
            chunk, more = await bodies.receive(request)
            chunks.append(chunk)

    def hold(self, scope: Scope, tenant: str, size: int) -> None:
        """Counts more bytes of a request. Raises Overloaded where there is no room for them."""
        if self._held[tenant] + size > self._free - size:
            message = (
                f"the bodies of {self._held[tenant]:,} bytes of this tenant are in hand; an api has"
                f" {self._max:,} for all tenants (MILLRACE_MAX_BODIES_MB): send fewer at a time"
            )
            raise Overloaded(message, retry_after_s=_RETRY_S)
        self._free -= size
        self._held[tenant] += size
        _, before = scope.get(HELD, (tenant, 0))
        scope[HELD] = tenant, before + size

    def held(self, tenant: str) -> int:
        """Returns the bytes that a tenant's requests hold."""
        return self._held[tenant]

    def release(self, scope: Scope) -> None:
        """Frees what a request holds, at its end; HELD must be in its scope."""
        tenant, size = scope.pop(HELD)
        self._free += size
        self._held[tenant] -= size
        if not self._held[tenant]:
            del self._held[tenant]
