"""HTTP/1.1 as far as a load generator needs it: one request, one answer, on a kept connection."""

_HEAD_END = b"\r\n\r\n"


def request(host: str, path: str, body: bytes, key: str = "") -> bytes:
    """A POST of JSON, ready to be sent. key: an API key; empty: it comes without one."""
    who = b"Authorization: Bearer %b\r\n" % key.encode() if key else b""
    return (
        b"POST %b HTTP/1.1\r\nHost: %b\r\n%bContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (path.encode(), host.encode(), who, len(body), body)
    )


class HttpAnswer:
    """One answer as it arrives, in pieces of any size."""

    __slots__ = ("_bytes", "_end", "_head_end")

    def __init__(self) -> None:
        self._bytes, self._head_end, self._end = b"", 0, 0

    def feed(self, piece: bytes) -> bool:
        """Whether the answer is complete. Raises ValueError where its length isn't told."""
        self._bytes += piece
        if not self._end:
            self._head_end = self._bytes.find(_HEAD_END)
            if self._head_end < 0:
                return False
            self._end = self._head_end + len(_HEAD_END) + self._content_length()
        return len(self._bytes) >= self._end

    @property
    def status(self) -> int:
        return int(self._bytes[9:12])

    @property
    def body(self) -> bytes:
        return self._bytes[self._head_end + len(_HEAD_END) : self._end]

    @property
    def closes(self) -> bool:
        """Whether the server ends the connection after it."""
        return b"\r\nconnection: close" in self._head()

    def _content_length(self) -> int:
        before, found, after = self._head().partition(b"\r\ncontent-length:")
        if not found:
            raise ValueError(f"an answer without Content-Length: {before!r}")
        return int(after.partition(b"\r\n")[0])

    def _head(self) -> bytes:
        return self._bytes[: self._head_end].lower()
