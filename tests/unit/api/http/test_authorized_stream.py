"""A stream goes on while it may, and ends without an end once it may not."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.http import authorized_stream
from api.http.authorized_stream import AuthorizedStream

pytestmark = pytest.mark.anyio

Message = dict[str, Any]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorized_stream, "CHECK_S", 0.001)


class Client:
    """Checks and messages of one response; its connection can't be aborted."""

    def __init__(self, checks: int) -> None:
        self.left, self.checked, self.sent = checks, asyncio.Event(), list[Message]()

    async def may_continue(self) -> bool:
        self.left -= 1
        if self.left == 0:
            self.checked.set()
        return self.left >= 0

    async def receive(self) -> Message:
        await asyncio.Event().wait()
        return {}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def read(self, pieces: AsyncIterator[bytes]) -> list[bytes]:
        """The bodies sent; the last is empty where the response is whole."""
        response = AuthorizedStream(pieces, self.may_continue)
        await response({"type": "http"}, self.receive, self.send)
        return [message["body"] for message in self.sent if "body" in message]


async def test_it_is_sent_whole_while_it_may_be_read_and_errors_of_its_pieces_are_raised() -> None:
    async def pieces(*more: Exception) -> AsyncIterator[bytes]:
        yield b"1"
        for error in more:
            raise error
        await asyncio.sleep(0.01)
        yield b"2"

    assert await Client(checks=1_000_000).read(pieces()) == [b"1", b"2", b""]
    with pytest.raises(ValueError, match="broken"):
        await Client(checks=1_000_000).read(pieces(ValueError("broken")))


async def test_it_ends_without_an_end_though_the_next_piece_never_comes() -> None:
    client, closed = Client(checks=3), asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        try:
            yield b"1"
            await client.checked.wait()
            yield b"2"
            await asyncio.Event().wait()
        finally:
            closed.set()

    assert await client.read(pieces()) == [b"1", b"2"]
    assert closed.is_set()
