"""HTTP/1.1 as far as the generator needs it: a POST of JSON and its response."""

_HEAD_END = b"\r\n\r\n"


def request(host: str, path: str, body: bytes, key: str = "") -> bytes:
    """Bytes of a POST of JSON. key: an API key; empty: no Authorization header."""
    authorization = b"Authorization: Bearer %b\r\n" % key.encode() if key else b""
    return (
        b"POST %b HTTP/1.1\r\nHost: %b\r\n%bContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b"
        % (path.encode(), host.encode(), authorization, len(body), body)
    )


class HttpResponse:
    """Parses one response that arrives in pieces of any size."""

    __slots__ = ("_bytes", "_end", "_head_end")

    def __init__(self) -> None:
        self._bytes, self._head_end, self._end = b"", 0, 0

    def feed(self, piece: bytes) -> bool:
        """Returns True once the response is complete. Raises ValueError without Content-Length."""
        self._bytes += piece
        if not self._end:
            self._head_end = self._bytes.find(_HEAD_END)
            if self._head_end < 0:
                return False
            before, found, after = self._head().partition(b"\r\ncontent-length:")
            if not found:
                raise ValueError(f"a response without Content-Length: {before!r}")
            length = int(after.partition(b"\r\n")[0])
            self._end = self._head_end + len(_HEAD_END) + length
        return len(self._bytes) >= self._end

    @property
    def status(self) -> int:
        """HTTP status."""
        return int(self._bytes[9:12])

    @property
    def body(self) -> bytes:
        """Bytes after the head."""
        return self._bytes[self._head_end + len(_HEAD_END) : self._end]

    @property
    def closes(self) -> bool:
        """True if the server ends the connection after this response."""
        return b"\r\nconnection: close" in self._head()

    def _head(self) -> bytes:
        return self._bytes[: self._head_end].lower()
