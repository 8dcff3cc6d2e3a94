"""A client as it should be: any api will do, and what fails on the way is tried again."""

import http.client
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from random import Random
from typing import Any

from jobs import clock

PATIENCE_S = 120.0
_TIMEOUT_S = 20.0
_BLOCK_BYTES = 1 << 16

GONE = (OSError, http.client.HTTPException)
"""What a request raises when nobody answers, or the answer breaks off."""

Body = bytes | Iterable[bytes] | None
NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def passing(self) -> bool:
        """Whether it is worth asking again."""
        return self.status >= 500 or self.status in (409, 429)


class Unanswered(Exception):
    """Nobody answered for as long as a client has patience."""


class Api:
    """All api processes behind one name. Belongs to one thread."""

    def __init__(self, ports: list[int], dice: Random) -> None:
        self._ports, self._dice = ports, dice

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(
            "127.0.0.1", self._dice.choice(self._ports), timeout=_TIMEOUT_S
        )

    def ask(
        self, method: str, path: str, body: Body = None, headers: Mapping[str, str] = NO_HEADERS
    ) -> Response:
        """One try; raises what GONE names."""
        with closing(self._connect()) as connection:
            streamed = body is not None and not isinstance(body, bytes)
            connection.request(method, path, body, dict(headers), encode_chunked=streamed)
            response = connection.getresponse()
            return Response(response.status, dict(response.headers), response.read())

    def insist(self, method: str, path: str, body: bytes | None = None) -> Response:
        """Tries until there is an answer that stays. Raises Unanswered."""
        deadline_s = clock.monotonic() + PATIENCE_S
        said: object = None
        while clock.monotonic() < deadline_s:
            try:
                answer = self.ask(method, path, body)
                if not answer.passing:
                    return answer
                said = answer
            except GONE as error:
                said = error
            clock.sleep(self._dice.uniform(0.05, 0.3))
        raise Unanswered(f"{method} {path}: {said!r}")

    def lines(self, path: str) -> "Lines":
        """Opens a stream of NDJSON; raises what GONE names."""
        connection = self._connect()
        try:
            connection.request("GET", path)
            return Lines(connection, connection.getresponse())
        except BaseException:
            connection.close()
            raise

    def break_off(self, path: str, blocks: Iterable[bytes], headers: Mapping[str, str]) -> int:
        """Begins an upload of these blocks, and goes away without its end. Returns the bytes."""
        sent = 0
        with closing(self._connect()) as connection:
            connection.putrequest("POST", path)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.putheader("Transfer-Encoding", "chunked")
            connection.endheaders()
            for block in blocks:
                connection.send(b"%x\r\n%b\r\n" % (len(block), block))
                sent += len(block)
        return sent


class Lines:
    """Lines as they stream in; closing it in the middle is going away."""

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        self._connection, self._response = connection, response
        self.status, self.headers = response.status, response.headers

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        while block := self._response.read1(_BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            yield from lines
        if rest:
            raise http.client.IncompleteRead(rest)

    def close(self) -> None:
        self._connection.close()
